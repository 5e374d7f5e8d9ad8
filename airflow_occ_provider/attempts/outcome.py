"""Pure: the outcome of one run of a Spark job, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple


class Outcome(StrEnum):
    """The outcome of one run of a Spark job."""

    COMMITTED = "committed"
    NOTHING_WRITTEN = "nothing_written"
    EARLY_CONFLICT = "early_conflict"
    COMMIT_CONFLICT = "commit_conflict"
    YIELDED = "yielded"
    LOCK_TIMEOUT = "lock_timeout"
    HEARTBEAT_EXPIRED = "heartbeat_expired"
    COMMIT_REFUSED = "commit_refused"
    ROLLED_BACK = "rolled_back"
    CLUSTERING_CONFLICT = "clustering_conflict"
    MISCONFIGURATION = "misconfiguration"
    HUDI_ERROR = "hudi_error"
    JOB_ERROR = "job_error"
    KILLED = "killed"
    ENDED = "ended"
    TIMED_OUT = "timed_out"
    NOT_STARTED = "not_started"
    UNKNOWN = "unknown"


REMEDIES = {
    Outcome.COMMITTED: "Nothing to do.",
    Outcome.NOTHING_WRITTEN: "Nothing to do, unless the job should have written.",
    Outcome.EARLY_CONFLICT: "Run the job again after the other writer of these files has ended.",
    Outcome.COMMIT_CONFLICT: "Run the job again: another writer committed the same files first.",
    Outcome.YIELDED: "Nothing to do: the task is queued behind the earlier writer of the same files.",
    Outcome.LOCK_TIMEOUT: "Look who holds Hudi's lock and whether its service answers; run again.",
    Outcome.HEARTBEAT_EXPIRED: "Run the job again; look for long collections or a slow storage.",
    Outcome.COMMIT_REFUSED: "Nothing to do if the task is retried: nothing was committed. If it happens "
    "again, look whether the task's processes pause, or reach the lock service or the storage too late; "
    "or raise the lease's time to live.",
    Outcome.ROLLED_BACK: "Find the writer without optimistic concurrency control that rolled this one "
    "back (its rollback is in the timeline) and configure it before running again.",
    Outcome.CLUSTERING_CONFLICT: "Let the pending clustering end, or roll it back; then run again.",
    Outcome.MISCONFIGURATION: "Correct the setting that the lines name; running again does not help.",
    Outcome.HUDI_ERROR: "Look at the table (airflow hudi doctor) and at the line before running again.",
    Outcome.JOB_ERROR: "Correct the job's own error.",
    Outcome.KILLED: "Find out who killed the driver (memory limit, operator, host); run again.",
    Outcome.ENDED: "Nothing to do if the task was marked or cleared; else find out what stopped its "
    "worker.",
    Outcome.TIMED_OUT: "Look in the log what the driver waited for, or raise the task's "
    "execution_timeout.",
    Outcome.NOT_STARTED: "Look for a lack of memory, disk space or network where the driver ran.",
    Outcome.UNKNOWN: "Look for the commit in the table's timeline before running again.",
}

HAVE_RIVALS = (Outcome.COMMIT_CONFLICT, Outcome.YIELDED, Outcome.CLUSTERING_CONFLICT)
"""The outcomes of a write that lost to an instant, or has to wait for it."""
UNCHECKED = (
    "Hudi's check for conflicts did not run before the commit: the job changed its concurrency mode"
)
_KILLED = frozenset({129, 130, 131, 134, 137, 143})


class Stop(NamedTuple):
    """The reason for which a guard ended a driver.

    :param outcome: of its attempt, unless the table shows that it committed.
    :param rival: requested time of the instant to which it has lost, if it has.
    :param instant: requested time of the driver's write that was in vain; ``None`` if the reason is
        about no single write.
    """

    outcome: Outcome
    line: str
    rival: str | None = None
    instant: str | None = None


class DoomedWrite(NamedTuple):
    """A write of a running driver that Hudi will refuse.

    :param stop: the reason to end the driver.
    :param found_ms: epoch milliseconds at which it was found.
    """

    stop: Stop
    found_ms: int


@dataclass(frozen=True, slots=True)
class LogReading:
    """The outcome of an attempt according to its log alone.

    :param outcome: see ``Outcome``; ``unknown`` if only the table could show it.
    :param instant: requested time of the attempt's write that lost a conflict, else of its last one, if
        the log shows it.
    :param rival: requested time of the instant that it conflicted with, if Hudi named it.
    :param lines: the decisive lines, as they were logged.
    :param cause: the line among them that decided, if one did.
    :param advice: what to do, if the lines say more than the outcome does.
    :param own_instants: requested times of all writes that the driver requested, oldest first.
    :param died: whether the log shows the exception that ended the program.
    :param conflict_checked: whether Hudi's check for conflicts of that write was logged; ``None`` if
        the log contains no records of Hudi at all.
    """

    outcome: Outcome
    instant: str | None = None
    rival: str | None = None
    lines: tuple[str, ...] = ()
    cause: str = ""
    advice: str = ""
    own_instants: tuple[str, ...] = ()
    died: bool = False
    conflict_checked: bool | None = None

    @property
    def without_commit(self) -> LogReading:
        """The same, for an attempt of which the table shows no commit."""
        if self.outcome is Outcome.UNKNOWN and self.died:
            return replace(self, outcome=Outcome.HUDI_ERROR)
        return self

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return self.advice or REMEDIES[self.outcome]


def timeout_line(limit: timedelta | None) -> str:
    """Return the reason to end a driver whose task has timed out."""
    return f"the task's execution_timeout{f' of {limit}' if limit else ''} is over"


def was_killed(exit_code: int) -> bool:
    """Whether an exit code shows that a signal ended the driver or its program."""
    return exit_code < 0 or exit_code in _KILLED
