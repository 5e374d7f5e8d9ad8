"""The workloads: which writers there are, seeded."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.bench.conflict.events import Job

PARTITIONS = tuple(f"p{number}" for number in range(7))
HOT = PARTITIONS[0]
LONGER = 3
_SPREAD = 0.2  # of a job's pause, in either direction


@dataclass(frozen=True, slots=True)
class Size:
    """How large the workloads are.

    :param writers: of *hot* and *short*; *mixed* and *skewed* have half as many again.
    :param pause_s: of a usual job.
    """

    writers: int
    pause_s: float

    @property
    def more(self) -> int:
        """The number of writers of *mixed* and *skewed*."""
        return self.writers + self.writers // 2


def hot(size: Size, rng: random.Random) -> list[Job]:
    """All write one partition."""
    return [_job(number, (HOT,), size, rng) for number in range(size.writers)]


def mixed(size: Size, rng: random.Random) -> list[Job]:
    """A third writes one partition; each of the others another one."""
    heat, cold = size.more // 3, PARTITIONS[1:]
    places = [HOT] * heat + [cold[number % len(cold)] for number in range(size.more - heat)]
    rng.shuffle(places)
    return [_job(number, (place,), size, rng) for number, place in enumerate(places)]


def skewed(size: Size, rng: random.Random) -> list[Job]:
    """One long writer of three partitions among short ones, of which every other one is in its way."""
    wide, narrow = PARTITIONS[:3], PARTITIONS[3:]
    places = [
        wide[number // 2 % 3] if number % 2 else narrow[number // 2 % 4]
        for number in range(size.more - 1)
    ]
    rng.shuffle(places)
    jobs = [_job(number, (place,), size, rng) for number, place in enumerate(places)]
    long = Job("long", wide, LONGER * size.pause_s, is_long=True)
    jobs.insert(rng.randrange(3), long)  # in the first wave
    return jobs


WORKLOADS: dict[str, Callable[[Size, random.Random], list[Job]]] = {
    "hot": hot,
    "mixed": mixed,
    "skewed": skewed,
    "short": hot,  # with jobs that are over soon: most of the time is start-up
}


def jobs_of(workload: str, size: Size, seed: int) -> tuple[Job, ...]:
    """Return the jobs of a workload, in the order in which they are started."""
    rng = random.Random(f"{workload} {seed}")
    return tuple(replace(job, pause_s=round(job.pause_s, 2)) for job in WORKLOADS[workload](size, rng))


def _job(number: int, partitions: tuple[str, ...], size: Size, rng: random.Random) -> Job:
    return Job(f"w{number}", partitions, size.pause_s * rng.uniform(1 - _SPREAD, 1 + _SPREAD))
