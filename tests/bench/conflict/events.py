"""What a run of the benchmark leaves behind, as values and as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_WHEN_BEGUN = "requested_s"


@dataclass(frozen=True, slots=True)
class Job:
    """The work of one writer.

    :param partitions: what it writes.
    :param pause_s: how long it computes its rows and writes its files.
    :param is_long: whether it is the long one of its workload.
    """

    writer: str
    partitions: tuple[str, ...]
    pause_s: float
    is_long: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One driver, from its start to its end, in seconds since its run began.

    :param number: of the try of its writer.
    :param committed: whether its write is in the table.
    :param refused: writes that Hudi refused within a driver that went on.
    :param refused_s: how long these took.
    :param outcome: in a word.
    :param requested_s: when Hudi requested the instant of the write that is in the table.
    :param completed_s: when Hudi completed it. Both are ``None`` without a commit, or if its rows are
        gone.
    :param stood_by_s: how long the driver waited for the lease of its job.
    """

    writer: str
    number: int
    start_s: float
    end_s: float
    committed: bool
    refused: int = 0
    refused_s: float = 0.0
    outcome: str = ""
    requested_s: float | None = None
    completed_s: float | None = None
    stood_by_s: float = 0.0

    @property
    def seconds(self) -> float:
        """How long the driver ran, without its time on standby."""
        return self.end_s - self.start_s - self.stood_by_s


@dataclass(frozen=True, slots=True)
class Run:
    """All writers of one workload, run in one way on a fresh table.

    :param arm: the way, one of ``arms.ARMS``.
    :param turn: number of the round in which it ran; all arms of a round have the same jobs.
    :param slots: drivers that may run at once in its arm.
    :param lost: rows of committed writers that are not in the table.
    :param doubled: rows that are there more than once.
    """

    workload: str
    arm: str
    turn: int
    seed: int
    slots: int
    jobs: tuple[Job, ...]
    events: tuple[Event, ...]
    lost: int = 0
    doubled: int = 0


def to_line(run: Run) -> str:
    """Return a run as a line of JSON."""
    return json.dumps(asdict(run))


def job_of(given: Mapping[str, Any]) -> Job:
    """Read a job back."""
    return Job(**{**given, "partitions": tuple(given["partitions"])})


def from_line(line: str) -> Run:
    """Read a run back.

    :raises ValueError: if the line is of a version that did not record when writes began.
    """
    given: dict[str, Any] = json.loads(line)
    if any(_WHEN_BEGUN not in event for event in given["events"]):
        raise ValueError(
            f"{_WHEN_BEGUN}: an event of {given['workload']} ({given['arm']}), round {given['turn']}, "
            "has no such field. The data is of an older version: run the benchmark again."
        )
    jobs = tuple(map(job_of, given["jobs"]))
    return Run(**{**given, "jobs": jobs, "events": tuple(Event(**one) for one in given["events"])})


def read_runs(path: Path) -> list[Run]:
    """Return the runs of a file."""
    return [from_line(line) for line in path.read_text().splitlines()]


def of(runs: Iterable[Run], workload: str, arm: str) -> Iterator[Run]:
    """Yield the runs of one workload in one arm."""
    return (run for run in runs if (run.workload, run.arm) == (workload, arm))
