"""The results as a plot: bars with their intervals, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from tests.bench.conflict.arms import ARMS, Arm
from tests.bench.conflict.bootstrap import Interval
from tests.bench.conflict.summary import Summary

WIDTH, PANEL, LEFT, TOP, HIGH = 720, 250, 60, 40, 150
_LOOK = (
    "text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-weight:bold}.n{font-size:11px}"
    ".f{fill:#ffffff}.h{fill:#8c959f}.o{fill:#0969da}.l{stroke:#57606a;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.f{fill:#0d1117}.h{fill:#6e7681}"
    ".o{fill:#4493f8}.l{stroke:#8d96a0}}"
)
_DESCRIPTION = (
    "Wasted Spark seconds and makespans of concurrent Hudi writers, by workload and by the way in which "
    "they are run. The lines are 95 % confidence intervals."
)
_PANELS = (("Spark seconds wasted per useful second", "waste"), ("Makespan in seconds", "makespan_s"))


def plot(found: Mapping[tuple[str, str], Summary]) -> str:
    """Return the SVG: a panel for each measure, a group for each workload, a bar for each arm."""
    arms = [arm for letter, arm in ARMS.items() if any(letter == key[1] for key in found)]
    height = TOP + PANEL * len(_PANELS) + 20 * len(arms)
    panels = [
        part
        for number, (title, field) in enumerate(_PANELS)
        for part in _panel(title, field, found, TOP + PANEL * number)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>make rig NAME=bench.conflict</title>",
            f"<desc>{_DESCRIPTION}</desc>",
            f"<style>{_LOOK}</style>",
            f'<rect class="f" width="{WIDTH}" height="{height}"/>',
            *panels,
            *_legend(arms, TOP + PANEL * len(_PANELS)),
            "</svg>\n",
        ]
    )


def _panel(title: str, field: str, found: Mapping[tuple[str, str], Summary], top: int) -> Iterator[str]:
    values: dict[tuple[str, str], Interval] = {key: getattr(one, field) for key, one in found.items()}
    most = max((one.high for one in values.values()), default=0) or 1.0
    workloads = list(dict.fromkeys(workload for workload, _ in found))
    arms = sorted({arm for _, arm in found})
    wide = (WIDTH - 2 * LEFT) / max(len(workloads), 1)
    base = top + HIGH + 20
    yield f'<text class="t" x="{LEFT}" y="{top}">{escape(title)}</text>'
    yield f'<path class="l" d="M{LEFT} {base}H{WIDTH - LEFT}"/>'
    for group, workload in enumerate(workloads):
        left = LEFT + group * wide
        yield f'<text x="{left:.0f}" y="{base + 32}">{escape(workload)}</text>'
        for number, arm in enumerate(arms):
            if (workload, arm) in values:
                x, bar = left + number * wide / len(arms), 7 * wide / 9 / len(arms)
                yield from _bar(values[workload, arm], arm, (x, bar, base), HIGH / most)


def _bar(value: Interval, arm: str, place: tuple[float, float, int], scale: float) -> Iterator[str]:
    x, bar, base = place
    high, middle = value.value * scale, x + bar / 2
    number = f"{value.value:.2f}" if value.value < 10 else f"{value.value:.0f}"
    kind, at = ("o" if ARMS[arm].ours else "h"), base - value.high * scale - 4
    yield (
        f'<rect class="{kind}" x="{x:.1f}" y="{base - high:.1f}" width="{bar:.1f}" height="{high:.1f}"/>'
    )
    low_y, high_y = base - value.low * scale, base - value.high * scale
    yield f'<path class="l" d="M{middle:.1f} {low_y:.1f}V{high_y:.1f}"/>'
    yield f'<text class="n" x="{middle:.1f}" y="{at:.1f}" text-anchor="middle">{number}</text>'
    yield f'<text class="n" x="{middle:.1f}" y="{base + 14}" text-anchor="middle">{arm}</text>'


def _legend(arms: Sequence[Arm], top: int) -> Iterator[str]:
    for number, arm in enumerate(arms):
        text = escape(f"({arm.letter}) {arm.title}")
        yield f'<text x="{LEFT}" y="{top + 20 * number}">{text}</text>'
