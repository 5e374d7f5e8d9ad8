"""What the events of one run came to. Pure: no clock, no file, no process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from tests.bench.conflict.events import Event, Job, Run


@dataclass(frozen=True, slots=True)
class Work:
    """What one writer needed.

    :param useful_s: of the driver that committed first, without what Hudi refused within it.
    :param wasted_s: of all else that its drivers did.
    :param tries: writes that were begun.
    :param commits: drivers that committed.
    """

    useful_s: float
    wasted_s: float
    tries: int
    commits: int

    @property
    def is_done(self) -> bool:
        """Whether the writer committed."""
        return self.commits > 0


def work_of(writer: str, events: Sequence[Event]) -> Work:
    """Return what a writer needed; a second commit of the same work is waste."""
    own = [one for one in events if one.writer == writer]
    done = sorted((one for one in own if one.committed), key=lambda one: one.end_s)
    useful_s = done[0].seconds - done[0].refused_s if done else 0.0
    spent_s = sum(one.seconds for one in own)
    return Work(useful_s, spent_s - useful_s, len(own) + sum(one.refused for one in own), len(done))


def works(run: Run) -> list[Work]:
    """Return what each writer of a run needed, in the order of its jobs."""
    return [work_of(job.writer, run.events) for job in run.jobs]


def waste(some: Sequence[Work]) -> float:
    """Return the Spark seconds wasted per useful second."""
    useful_s = sum(one.useful_s for one in some)
    wasted_s = sum(one.wasted_s for one in some)
    if useful_s:
        return wasted_s / useful_s
    return float("inf") if wasted_s else 0.0


def tries_per_commit(some: Sequence[Work]) -> float:
    """Return how many writes were begun for each writer that committed."""
    done = sum(one.is_done for one in some)
    return sum(one.tries for one in some) / done if done else float("inf")


def makespan_s(run: Run) -> float:
    """Return the seconds until the last driver ended."""
    return max((one.end_s for one in run.events), default=0.0)


def conflict(one: Job, other: Job) -> bool:
    """Whether two jobs truly conflict: both rewrite the small file of a partition."""
    return not set(one.partitions).isdisjoint(other.partitions)


def longest_chain_s(run: Run) -> float:
    """Return the most seconds of jobs of which each conflicts with each other.

    No order and no number of slots makes such jobs end sooner. A writer without a commit counts with
    its longest driver.
    """
    seconds = _seconds(run)
    chains = (
        chain
        for size in range(1, len(run.jobs) + 1)
        for chain in combinations(run.jobs, size)
        if all(conflict(one, other) for one, other in combinations(chain, 2))
    )
    return max((sum(seconds[job.writer] for job in chain) for chain in chains), default=0.0)


def lower_bound_s(run: Run) -> float:
    """Return the least makespan that any schedule of these jobs could have.

    The seconds of a job are those that its committed driver took in this run: drivers side by side
    share the cores, and are slower than one alone. So a wasteful run has a greater bound, which is to
    its advantage.
    """
    return max(longest_chain_s(run), sum(_seconds(run).values()) / run.slots)


def stretch(run: Run) -> float:
    """Return the makespan in units of its lower bound."""
    bound_s = lower_bound_s(run)
    return makespan_s(run) / bound_s if bound_s else float("inf")


def is_one_chain(run: Run) -> bool:
    """Whether every job conflicts with every other, so that one slot is as good as many."""
    return all(conflict(one, other) for one, other in combinations(run.jobs, 2))


def defeats_of_long(run: Run) -> int:
    """Return how many writes of the long jobs were in vain."""
    return sum(
        work.tries - min(work.commits, 1)
        for job, work in zip(run.jobs, works(run), strict=True)
        if job.is_long
    )


def unfinished(run: Run) -> int:
    """Return how many writers gave up."""
    return sum(not one.is_done for one in works(run))


def _seconds(run: Run) -> dict[str, float]:
    longest = {
        job.writer: max((one.seconds for one in run.events if one.writer == job.writer), default=0.0)
        for job in run.jobs
    }
    return {
        job.writer: work.useful_s if work.is_done else longest[job.writer]
        for job, work in zip(run.jobs, works(run), strict=True)
    }
