"""What the events of one run came to. Pure: no clock, no file, no process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.conflict.events import Event, Run


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


def commits_of(writer: str, events: Sequence[Event]) -> list[Event]:
    """Return the drivers of a writer that committed, in the order of their ends."""
    done = (one for one in events if one.writer == writer and one.committed)
    return sorted(done, key=lambda one: one.end_s)


def work_of(writer: str, events: Sequence[Event]) -> Work:
    """Return what a writer needed; a second commit of the same work is waste."""
    own = [one for one in events if one.writer == writer]
    done = commits_of(writer, events)
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


def standby_s(run: Run) -> float:
    """Return the seconds for which drivers waited for their leases."""
    return sum(one.stood_by_s for one in run.events)


def stretch(run: Run, bound_s: float) -> float:
    """Return the makespan in units of its lower bound; infinite if a writer gave up."""
    return makespan_s(run) / bound_s if bound_s and not unfinished(run) else float("inf")


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
