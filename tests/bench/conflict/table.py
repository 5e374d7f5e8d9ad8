"""The results as a table."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench.conflict.arms import ARMS
from tests.bench.conflict.summary import Summary

_HEAD = (
    "waste",
    "makespan",
    "over the bound",
    "tries / commit",
    "standby",
    "lost",
    "doubled",
    "given up",
)


def table(found: Mapping[tuple[str, str], Summary]) -> str:
    """Return the table of all arms, workload by workload."""
    blocks = []
    for workload in dict.fromkeys(workload for workload, _ in found):
        some = [found[workload, arm] for arm in ARMS if (workload, arm) in found]
        runs = max(len(one.runs) for one in some)
        head = f"\n{workload}, {len(some[0].runs[0].jobs)} writers, runs of each arm: {runs}"
        rows = [_line("", *_HEAD), *map(_row, some)]
        blocks.append("\n".join([head, *rows]))
    return "\n".join(blocks)


def _row(one: Summary) -> str:
    return _line(
        f"({one.arm}) {ARMS[one.arm].title}",
        str(one.waste),
        f"{one.makespan_s.value:.0f} s",
        str(one.stretch),
        str(one.tries),
        f"{one.standby_s:.0f} s",
        *map(str, (one.lost, one.doubled, one.unfinished)),
    )


def _line(name: str, *cells: str) -> str:
    widths = (20, 10, 20, 20, 9, 6, 9, 10)
    return f"  {name:<36}" + "".join(
        f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)
    )
