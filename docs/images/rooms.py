"""Draw the folders of the package as a house: ``python docs/images/rooms.py rooms.svg``.

A folder imports what is below it, or beside it in its own box; ``tests/unit/test_architecture.py``
compares the drawing with the imports that it allows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape


class Box(NamedTuple):
    """A room, or several that belong together.

    :param rooms: folders and files of the package, without their endings.
    :param says: what they do, in a few words.
    :param style: of the look below.
    """

    rooms: tuple[str, ...]
    says: str
    style: str = "room"


# From the top to the bottom.
AIRFLOW = (
    (
        Box(("decorators",), "@task.hudi_write"),
        Box(("cli",), "airflow hudi ..."),
        Box(("ui",), "pages in Airflow's UI"),
    ),
    (
        Box(("operators",), "tasks that write, clean, compact, keep a lease"),
        Box(("sensors",), "tasks that wait for a table or a lease"),
    ),
    (Box(("triggers",), "waits without a worker slot: for a lease, a rival, a commit, a driver's end"),),
    (Box(("places",), "where a task's drivers run: this host, YARN, Kubernetes, another operator"),),
    (Box(("hooks",), "connections of locks, tables and Spark"),),
    (
        Box(("task",), "a task run: its record, metrics, link"),
        Box(("assets",), "assets of tables, runs per commit"),
    ),
)
CORE = (
    (Box(("standalone",), "the scheduler of a program without Airflow"),),
    (
        Box(("submitters",), "start, follow and end a driver"),
        Box(("reading",), "tables, for people and pipelines"),
        Box(("testing",), "tests for lease stores"),
    ),
    (
        Box(
            ("attempts",),
            "one write: settle earlier tries, hold a lease, run, settle by the table, audit",
        ),
    ),
    (
        Box(("storage",), "reads a table's metadata"),
        Box(("leases",), "the queue of a table, over a store"),
    ),
    (
        Box(("hudi",), "what metadata means", "pure"),
        Box(("driver", "in_driver"), "the contract; runs in Spark", "spark"),
        Box(("embedded",), "services for the tests"),
    ),
    (
        Box(
            ("errors", "retry", "spelling", "via", "connection_form", "bounded"),
            "values and words that all folders share",
            "pure",
        ),
    ),
)
_FILES = {"standalone", *CORE[-1][0].rooms}
_FOLDERS = {room for row in (*AIRFLOW, *CORE) for box in row for room in box.rooms} - _FILES
_WIDTH, _LEFT, _RIGHT, _ROW, _GAP, _BAND = 760, 40, 720, 46, 10, 34
_LOOK = """\
.card{fill:#fbfcfd;stroke:#c9d1d9} .ink{fill:#1f2933} .soft{fill:#52606d} .line{stroke:#7b8794;fill:none}
.room{fill:#fff;stroke:#7b8794} .pure{fill:#bfe3c6;stroke:#2f855a} .spark{fill:#fde7b8;stroke:#b7791f}
.tip{fill:#7b8794} text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif}
.bold{font-size:14px;font-weight:600}
@media (prefers-color-scheme:dark){.card{fill:#161b22;stroke:#3d444d}.ink{fill:#e6edf3}
.soft{fill:#aab4bf}.line{stroke:#8b949e}.room{fill:#0d1117;stroke:#8b949e}
.pure{fill:#1c4a30;stroke:#62c98a}.spark{fill:#574112;stroke:#e3b341}.tip{fill:#8b949e}}
"""
_DESCRIPTION = (
    "The folders of the package in twelve rows. Six rows import Airflow; the six below them do not. "
    "A folder imports only what is below it."
)


def main() -> None:
    """Write the drawing."""
    Path(sys.argv[1]).write_text(draw())


def draw() -> str:
    """Return the SVG."""
    shapes, top = [], 20
    for caption, rows in (("These import Airflow", AIRFLOW), ("These do not know Airflow", CORE)):
        height = _BAND + len(rows) * (_ROW + _GAP)
        shapes.append(f'<rect class="card" x="20" y="{top}" width="720" height="{height}" rx="10"/>')
        shapes.append(f'<text class="soft" x="{_LEFT}" y="{top + 22}">{caption}</text>')
        for number, row in enumerate(rows):
            shapes += _boxes(row, top + _BAND + number * (_ROW + _GAP))
        top += height + _GAP
    key = (
        "A folder imports only what is below it. "
        "Green is pure: no I/O. Yellow is shipped to the Spark driver."
    )
    shapes += [
        f'<path class="line" d="M10 40 V{top - 30}"/>',
        f'<path class="tip" d="M10 {top - 20} L5 {top - 32} L15 {top - 32} Z"/>',
        f'<text class="soft" x="{_LEFT}" y="{top + 12}">{key}</text>',
    ]
    height = top + 28
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="t d">',
            '<title id="t">The folders of the package</title>',
            f'<desc id="d">{_DESCRIPTION}</desc>',
            f"<style>{_LOOK}</style>",
            *shapes,
            "</svg>\n",
        ]
    )


def _boxes(row: tuple[Box, ...], top: int) -> list[str]:
    width = (_RIGHT - _LEFT - _GAP * (len(row) - 1)) // len(row)
    shapes = []
    for number, box in enumerate(row):
        x = _LEFT + number * (width + _GAP)
        names = ", ".join(f"{room}/" if room in _FOLDERS else f"{room}.py" for room in box.rooms)
        shapes += [
            f'<rect class="{box.style}" x="{x}" y="{top}" width="{width}" height="{_ROW}" rx="6"/>',
            f'<text class="ink bold" x="{x + 12}" y="{top + 20}">{names}</text>',
            f'<text class="soft" x="{x + 12}" y="{top + 37}">{escape(box.says)}</text>',
        ]
    return shapes


if __name__ == "__main__":
    main()
