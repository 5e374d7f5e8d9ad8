"""What the benchmark has to show, as goals that ``CHECK=1`` turns into a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.bench.conflict.arms import BY_HAND
from tests.bench.conflict.bound import is_one_chain
from tests.bench.conflict.summary import Summary, more_waste, relative_makespan
from tests.bench.harness import Goal

Summaries = Mapping[tuple[str, str], Summary]
RETRYING = ("a", "b", "c")
POOL, UNSCOPED, SCOPED, LEARNED, STANDBY = "d", "e", "f", "g", "l"
MOST_WASTE_SCOPED, MOST_WASTE_HOT, SHARE_OF_BEST = 0.02, 0.25, 1 / 3
MOST_STRETCH, MOST_OF_POOL = 1.10, 0.75
BEHIND_WASTE, BEHIND_MAKESPAN = 0.02, 1.05


def goals(found: Summaries) -> list[Goal]:
    """Return the goals of all workloads that were run."""
    workloads = dict.fromkeys(workload for workload, _ in found)
    return [
        goal
        for workload in workloads
        for part in (_bound, _scoped, _unscoped, _standby, _beside_the_best, _rows)
        for goal in part(workload, found)
    ]


def _bound(workload: str, found: Summaries) -> Iterator[Goal]:
    """Check the bound itself: a makespan below it means that the evidence is wrong."""
    least = min(one.stretch.low for key, one in found.items() if key[0] == workload)
    yield Goal(f"{workload}: least makespan / bound", round(least, 6), at_least=1)


def _scoped(workload: str, found: Summaries) -> Iterator[Goal]:
    ours, pool = found.get((workload, SCOPED)), found.get((workload, POOL))
    if ours is None:
        return
    yield Goal(f"{workload} (f): waste", ours.waste.value, at_most=MOST_WASTE_SCOPED)
    yield Goal(f"{workload} (f): makespan / bound", ours.stretch.value, at_most=MOST_STRETCH)
    if pool and not all(map(is_one_chain, ours.runs)):
        below = relative_makespan(ours, pool).value
        yield Goal(f"{workload} (f): makespan / that of (d)", below, at_most=1)


def _unscoped(workload: str, found: Summaries) -> Iterator[Goal]:
    ours = found.get((workload, UNSCOPED))
    if ours is None:
        return
    if workload == "hot":
        yield Goal("hot (e): waste", ours.waste.value, at_most=MOST_WASTE_HOT)
    if theirs := [found[workload, arm].waste.value for arm in RETRYING if (workload, arm) in found]:
        most = round(min(theirs) * SHARE_OF_BEST, 3)
        yield Goal(f"{workload} (e): waste, a third of the best of (a-c)", ours.waste.value, most)
    if any(job.is_long for run in ours.runs for job in run.jobs):
        yield Goal(f"{workload} (e): defeats of the long writer", ours.defeats_of_long, 0, unit="")


def _standby(workload: str, found: Summaries) -> Iterator[Goal]:
    ours, pool = found.get((workload, STANDBY)), found.get((workload, POOL))
    if workload == "short" and ours and pool:
        below = relative_makespan(ours, pool).value
        yield Goal("short (l): makespan / that of (d)", below, at_most=MOST_OF_POOL)


def _beside_the_best(workload: str, found: Summaries) -> Iterator[Goal]:
    """Compare with the best of those by hand, outside the confidence interval.

    Less waste than a retry is what (e) has to show; that it wastes as little as a pool of one slot,
    which cannot waste anything, is asked of (f) alone.
    """
    theirs = [found[workload, arm] for arm in BY_HAND if (workload, arm) in found]
    for arm in (UNSCOPED, SCOPED):
        ours = found.get((workload, arm))
        if not theirs or ours is None:
            continue
        if arm == SCOPED:
            least = min(theirs, key=lambda one: one.waste.value)
            low = more_waste(ours, least).low
            yield Goal(f"{workload} (f): waste over that of ({least.arm}), low", low, BEHIND_WASTE)
        fastest = min(theirs, key=lambda one: one.makespan_s.value)
        low = relative_makespan(ours, fastest).low
        text = f"{workload} ({arm}): makespan / that of ({fastest.arm}), low"
        yield Goal(text, low, at_most=BEHIND_MAKESPAN)


def _rows(workload: str, found: Summaries) -> Iterator[Goal]:
    for arm in (UNSCOPED, SCOPED, LEARNED, STANDBY):
        if ours := found.get((workload, arm)):
            wrong = ours.lost + ours.doubled + ours.unfinished
            yield Goal(f"{workload} ({arm}): lost, doubled, given up", wrong, at_most=0, unit="")
