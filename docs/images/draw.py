"""Draw a recorded terminal as an animated SVG: ``python docs/images/draw.py demo.cast demo.svg``.

The same recording always gives the same file. A pause is shortened to ``LONGEST_PAUSE_S``; the times in
the demo's own text are the real ones.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

LONGEST_PAUSE_S = 1.5
READING_S = 6.0
ROWS = 34
CHAR, LINE, MARGIN = 7, 16, 14
_STYLES = {"1": "b", "31": "r", "32": "g"}
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_DESCRIPTION = (
    "Two Airflow tasks write one Hudi table. One loses a conflict, is retried, and both commit. "
    "At the end the table proves it."
)
_LOOK = """\
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}
text{white-space:pre;fill:#1f2328}
.f{fill:#f6f8fa;stroke:#d0d7de}.b{font-weight:bold}.r{fill:#cf222e}.g{fill:#1a7f37;font-weight:bold}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}
.f{fill:#0d1117;stroke:#30363d}.r{fill:#ff7b72}.g{fill:#3fb950}}
"""


class Line(NamedTuple):
    """A line of the terminal.

    :param at_s: when it was printed, with pauses shortened.
    :param spans: text and style.
    """

    at_s: float
    spans: tuple[tuple[str, str], ...]


def main() -> None:
    """Read the recording and write the drawing."""
    recording, drawing = sys.argv[1:]
    Path(drawing).write_text(draw(Path(recording).read_text()))


def draw(recording: str) -> str:
    """Return the SVG of an asciicast."""
    header, *events = map(json.loads, recording.splitlines())
    lines = [Line(0.0, ((f"$ {header['title']}", "b"),))]
    for at_s, text in shortened(events):
        for line in text.replace("\r", "").splitlines():
            lines += [Line(at_s, row) for row in wrapped(styled(line), header["width"])]
    width, height = header["width"] * CHAR + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    whole_s = lines[-1].at_s + READING_S
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
            "<title>make demo</title>",
            f"<desc>{_DESCRIPTION}</desc>",
            f"<style>{_LOOK}{motion(lines, whole_s)}</style>",
            f'<rect class="f" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="6"/>',
            f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN}" height="{ROWS * LINE}">',
            '<g class="s">',
            *(row(number, line, lines) for number, line in enumerate(lines)),
            "</g></svg>",
            "</svg>\n",
        ]
    )


def shortened(events: list[tuple[float, str, str]]) -> list[tuple[float, str]]:
    """Return what was printed, with the pauses before it shortened."""
    found, now_s, before_s = [], 0.0, 0.0
    for at_s, _, text in events:
        now_s += min(at_s - before_s, LONGEST_PAUSE_S)
        before_s = at_s
        found.append((round(now_s, 2), text))
    return found


def styled(line: str) -> list[tuple[str, str]]:
    """Return the characters of a line with their styles."""
    found, style = [], ""
    for number, part in enumerate(_SGR.split(line)):
        if number % 2:
            style = _STYLES.get(part, "")
        else:
            found += [(character, style) for character in part]
    return found


def wrapped(characters: list[tuple[str, str]], columns: int) -> list[tuple[tuple[str, str], ...]]:
    """Return the rows that a line takes, as spans of one style."""
    rows = []
    for start in range(0, max(len(characters), 1), columns):
        spans: list[tuple[str, str]] = []
        for character, style in characters[start : start + columns]:
            if spans and spans[-1][1] == style:
                spans[-1] = (spans[-1][0] + character, style)
            else:
                spans.append((character, style))
        rows.append(tuple(spans))
    return rows


def motion(lines: list[Line], whole_s: float) -> str:
    """Return the rules that show each line at its time, and scroll."""
    rules = []
    times = sorted({line.at_s for line in lines})
    scroll = []
    for number, at_s in enumerate(times):
        percent = f"{at_s / whole_s * 100:.2f}%"
        rules.append(f"@keyframes k{number}{{0%{{opacity:0}}{percent},to{{opacity:1}}}}")
        rules.append(f".t{number}{{animation:k{number} {whole_s:.2f}s step-end infinite}}")
        shown = sum(line.at_s <= at_s for line in lines)
        scroll.append(f"{percent}{{transform:translateY({-max(shown - ROWS, 0) * LINE}px)}}")
    last = -max(len(lines) - ROWS, 0) * LINE
    rules.append(f"@keyframes s{{{''.join(scroll)}to{{transform:translateY({last}px)}}}}")
    rules.append(f".s{{animation:s {whole_s:.2f}s step-end infinite}}")
    still = f"*{{animation:none!important}}.s{{transform:translateY({last}px)}}"
    rules.append(f"@media(prefers-reduced-motion:reduce){{{still}}}")
    return "\n".join(rules)


def row(number: int, line: Line, lines: list[Line]) -> str:
    """Return the element of a line."""
    time = sorted({one.at_s for one in lines}).index(line.at_s)
    text = "".join(
        f'<tspan class="{style}">{escape(part)}</tspan>' if style else escape(part)
        for part, style in line.spans
    )
    length = sum(len(part) for part, _ in line.spans) * CHAR
    # The width is given, so that the frames of tables meet in every font.
    fixed = f' textLength="{length}" lengthAdjust="spacingAndGlyphs"' if length else ""
    return f'<text class="t{time}" y="{(number + 1) * LINE - 4}"{fixed}>{text}</text>'


if __name__ == "__main__":
    main()
