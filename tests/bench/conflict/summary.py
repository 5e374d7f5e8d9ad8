"""What one arm came to on one workload, with intervals; and how two arms compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tests.bench.conflict import measures
from tests.bench.conflict.arms import ARMS
from tests.bench.conflict.bootstrap import Interval, interval
from tests.bench.conflict.bound import Round, bounds, round_of
from tests.bench.conflict.events import Run, of


@dataclass(frozen=True, slots=True)
class Summary:
    """One arm on one workload.

    :param waste: Spark seconds wasted per useful second.
    :param makespan_s: of its runs on average.
    :param stretch: makespan over its lower bound.
    :param tries: writes begun per commit.
    :param standby_s: for which drivers waited for leases, in a run on average.
    :param lost: rows that are missing, in all runs.
    :param doubled: rows that are there more than once.
    :param unfinished: writers that gave up.
    :param defeats_of_long: writes of the long writer that were in vain.
    """

    workload: str
    arm: str
    runs: tuple[Run, ...]
    waste: Interval
    makespan_s: Interval
    stretch: Interval
    tries: Interval
    standby_s: float
    lost: int
    doubled: int
    unfinished: int
    defeats_of_long: int


def summarize(workload: str, arm: str, runs: Sequence[Run], bounds_s: Mapping[Round, float]) -> Summary:
    """Return the summary of an arm's runs of one workload.

    :param bounds_s: the lower bound of the makespans of each round.
    """
    writers = [measures.works(run) for run in runs]
    return Summary(
        workload,
        arm,
        tuple(runs),
        interval(measures.waste, writers),
        interval(fmean, [[measures.makespan_s(run)] for run in runs]),
        interval(fmean, [[measures.stretch(run, bounds_s[round_of(run)])] for run in runs]),
        interval(measures.tries_per_commit, writers),
        fmean(measures.standby_s(run) for run in runs),
        sum(run.lost for run in runs),
        sum(run.doubled for run in runs),
        sum(map(measures.unfinished, runs)),
        sum(map(measures.defeats_of_long, runs)),
    )


def summaries(runs: Sequence[Run]) -> dict[tuple[str, str], Summary]:
    """Return a summary by workload and arm, as far as there are runs."""
    found, bounds_s = {}, bounds(runs)
    for workload in dict.fromkeys(run.workload for run in runs):
        for arm in ARMS:
            if own := list(of(runs, workload, arm)):
                found[workload, arm] = summarize(workload, arm, own, bounds_s)
    return found


def more_waste(one: Summary, other: Summary) -> Interval:
    """Return how much more one arm wastes than the other."""
    writers = [[measures.works(run) for run in summary.runs] for summary in (one, other)]
    return interval(lambda ours, theirs: measures.waste(ours) - measures.waste(theirs), *writers)


def relative_makespan(one: Summary, other: Summary) -> Interval:
    """Return one arm's makespan in units of the other's."""
    seconds = [[[measures.makespan_s(run)] for run in summary.runs] for summary in (one, other)]
    return interval(lambda ours, theirs: fmean(ours) / fmean(theirs), *seconds)
