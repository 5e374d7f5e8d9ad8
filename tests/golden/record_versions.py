"""Make the tables of releases in ``docs/reference/versions.md``: ``make golden NAME=versions``.

They are made from the lines that ``make rig NAME=faults HUDI=1.0.2 RECORD=1`` adds to
``versions.jsonl``, and from the recorded logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from airflow_occ_provider.embedded.bundle import HUDI_VERSION
from tests.golden import HUDI_RELEASES
from tests.support.results import Result, results

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "versions.md"
BEGIN, END = "<!-- made by make golden NAME=versions -->\n", "<!-- end -->\n"
_LOGS = Path(__file__).parent / "logs"


def main() -> None:
    """Write the page's part anew."""
    PAGE.write_text(page(PAGE.read_text(), list(results())))


def page(text: str, ended: Sequence[Result]) -> str:
    """Return the page with the part that is made of results."""
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n{_releases(ended)}\n\n{_runs(ended)}\n\n{END}{tail}"


def _releases(ended: Sequence[Result]) -> str:
    """Return the table with a row for each rig, and a column for each release."""
    cells: dict[str, dict[str, list[Result]]] = {}
    for result in ended:
        cells.setdefault(result.rig, {}).setdefault(result.hudi, []).append(result)
    rows = [
        (rig, *(_cell(by_release.get(hudi, ())) for hudi in HUDI_RELEASES))
        for rig, by_release in sorted(cells.items())
        if not by_release.keys().isdisjoint(HUDI_RELEASES)
    ]
    return _table(("", *HUDI_RELEASES), [*rows, ("logs in `tests/golden`", *map(_logs, HUDI_RELEASES))])


def _cell(ended: Iterable[Result]) -> str:
    runs, wrong = sum(result.runs for result in ended), sum(result.wrong for result in ended)
    return f"{wrong} of {runs} wrong" if runs else "not run"


def _logs(hudi: str) -> str:
    folder = _LOGS if hudi == HUDI_VERSION else _LOGS / hudi
    return str(len(list(folder.glob("*.log"))) or "none")


def _runs(ended: Iterable[Result]) -> str:
    rows = [
        (
            result.date,
            result.hudi,
            result.rig,
            str(result.seed or ""),
            f"{result.wrong} of {result.runs}",
            ", ".join(f"{name}: {count}" for name, count in result.counts.items()),
        )
        for result in sorted(ended, key=lambda result: (result.rig, result.hudi, result.date))
    ]
    return _table(("date", "Hudi", "rig", "seed", "wrong", "also counted"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (head, ["---"] * len(head), *rows)
    return "\n".join(re.sub(r" +", " ", f"| {' | '.join(line)} |") for line in lines)


if __name__ == "__main__":
    main()
