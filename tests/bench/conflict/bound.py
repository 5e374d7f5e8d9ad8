"""The least makespan that the jobs of one round could have, in whichever arm. Pure.

Two committed writes that conflict were not under way at the same time: Hudi refuses a write if a
conflicting one completed since it began. Only this part of a driver is exclusive, from the requested
instant to the completion; start-ups overlap, and so does what follows a commit. Hudi looks for rivals a
moment after the request. A rival that completes in that moment ends where the exclusive part begins, so
the exclusive parts of conflicting writes are disjoint in every run, by construction.

The jobs of all arms are the same, but drivers side by side share the cores. So each writer counts with
its least seconds in any arm of the round. No run is then shorter than the exclusive parts of a chain
after the shortest start-up in it, nor than the work over the slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from tests.bench.conflict.events import Event, Job, Run
from tests.bench.conflict.measures import commits_of, works


class Round(NamedTuple):
    """What the runs of all arms with the same jobs have in common."""

    workload: str
    turn: int
    seed: int


def round_of(run: Run) -> Round:
    """Return the round of a run."""
    return Round(run.workload, run.turn, run.seed)


def bounds(runs: Iterable[Run]) -> dict[Round, float]:
    """Return the lower bound of each round."""
    rounds: dict[Round, list[Run]] = {}
    for run in runs:
        rounds.setdefault(round_of(run), []).append(run)
    return {key: lower_bound_s(some) for key, some in rounds.items()}


def lower_bound_s(runs: Sequence[Run]) -> float:
    """Return the least makespan of the jobs of one round.

    :param runs: one of each arm. A run in which a writer gave up may be shorter.
    """
    return max(longest_chain_s(runs), work_over_slots_s(runs))


def longest_chain_s(runs: Sequence[Run]) -> float:
    """Return the most seconds of jobs of which each conflicts with each other.

    No order and no number of slots makes such jobs end sooner. One of them is the first, so the
    shortest start-up in the chain counts once.
    """
    exclusive, start_up = least(map(exclusive_s, runs)), least(map(start_up_s, runs))
    return max(
        (
            min(start_up[one] for one in chain) + sum(exclusive[one] for one in chain)
            for chain in chains([job for job in runs[0].jobs if job.writer in exclusive])
        ),
        default=0.0,
    )


def work_over_slots_s(runs: Sequence[Run]) -> float:
    """Return the seconds for which the useful drivers fill all slots.

    In an arm of fewer slots a driver takes more of the run, though fewer seconds: it shares the cores
    with fewer others. So the seconds of a driver are divided by the slots of its own arm.
    """
    return sum(least(map(_shares_s, runs)).values())


def exclusive_s(run: Run) -> dict[str, float]:
    """Return the seconds for which each writer's committed write excluded those in conflict with it.

    A writer without a commit, or whose rows are gone, is left out.
    """
    found: dict[str, float] = {}
    before: list[tuple[Job, float]] = []
    for completed_s, requested_s, job in sorted(_writes(run), key=lambda one: one[:2]):
        since_s = max([requested_s, *(at_s for rival, at_s in before if conflict(job, rival))])
        found[job.writer] = completed_s - since_s
        before.append((job, completed_s))
    return found


def start_up_s(run: Run) -> dict[str, float]:
    """Return the seconds from each committed driver's start to its write, without refused writes."""
    return {
        job.writer: one.requested_s - one.start_s - one.refused_s - one.stood_by_s
        for job, one in _first_commits(run)
        if one.requested_s is not None
    }


def least(some: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the least value of each key in any of the mappings."""
    found: dict[str, float] = {}
    for one in some:
        found |= {key: min(value, found.get(key, value)) for key, value in one.items()}
    return found


def conflict(one: Job, other: Job) -> bool:
    """Whether two jobs truly conflict: both rewrite the small file of a partition."""
    return not set(one.partitions).isdisjoint(other.partitions)


def is_one_chain(run: Run) -> bool:
    """Whether every job conflicts with every other, so that one slot is as good as many."""
    return all(conflict(one, other) for one, other in combinations(run.jobs, 2))


def chains(jobs: Sequence[Job]) -> Iterable[tuple[str, ...]]:
    """Yield the writers of each set of jobs that all conflict with each other."""
    for size in range(1, len(jobs) + 1):
        for chain in combinations(jobs, size):
            if all(conflict(one, other) for one, other in combinations(chain, 2)):
                yield tuple(job.writer for job in chain)


def _first_commits(run: Run) -> Iterable[tuple[Job, Event]]:
    for job in run.jobs:
        if done := commits_of(job.writer, run.events):
            yield job, done[0]


def _writes(run: Run) -> Iterable[tuple[float, float, Job]]:
    for job, one in _first_commits(run):
        if one.requested_s is not None and one.completed_s is not None:
            yield one.completed_s, one.requested_s, job


def _shares_s(run: Run) -> dict[str, float]:
    return {
        job.writer: work.useful_s / run.slots
        for job, work in zip(run.jobs, works(run), strict=True)
        if work.is_done
    }
