"""Pure: the outcome of an attempt, what to do about it, and a failure in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from airflow_occ_provider import errors
from airflow_occ_provider.spelling import spell_owner

_KILLED = frozenset({129, 130, 131, 134, 137, 143})
LIMIT = 160
"""Every line is shorter than this."""
WASTED = "wasted."
UNSIGNED = "an unsigned commit"
_WASTED = re.compile(rf"([\d.]+ (?:s|min|h)) (?:of Spark time )?{re.escape(WASTED)}")
_PACKAGE = re.compile(r"\b(?:[a-z][\w$]*\.)+(?=[A-Z])")
_LEADING = re.compile(r"^(?:: |Caused by: )")
# Each step drops the least important part that is left.
_STEPS = 9


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


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an outcome means: for its task, for people and for the metrics.

    :param remedy: what to do about it.
    :param title: begins the sentence that describes an attempt which failed so.
    :param error: raised for such an attempt; ``None`` if it has not failed, or only the table can tell.
    :param may_have_committed: whether the attempt may have committed, though it does not count as done.
    :param has_rival: whether the attempt lost to an instant, or has to wait for it.
    :param is_conflict: whether it counts in ``hudi.conflicts``.
    :param is_wasted: whether its time counts in ``hudi.wasted``: another writer, Hudi's lock, the lease
        or the heartbeat took the work.
    :param explains_clean: whether a failed clean whose log shows it is refused with this error, not with
        a ``FenceError``.
    :param writers_refuse: whether a pending write may refuse the next try, too.
    :param clusterings_refuse: whether a pending clustering may. Early detection ignores its plan.
    """

    remedy: str
    title: str = ""
    error: type[errors.AttemptError] | None = None
    may_have_committed: bool = False
    has_rival: bool = False
    is_conflict: bool = False
    is_wasted: bool = False
    explains_clean: bool = False
    writers_refuse: bool = True
    clusterings_refuse: bool = True


MEANINGS: Mapping[Outcome, Meaning] = MappingProxyType(
    {
        Outcome.COMMITTED: Meaning("Nothing to do."),
        Outcome.NOTHING_WRITTEN: Meaning("Nothing to do, unless the job should have written."),
        Outcome.EARLY_CONFLICT: Meaning(
            "Run the job again after the other writer of these files has ended.",
            title="Early conflict",
            error=errors.WriteConflictError,
            is_conflict=True,
            is_wasted=True,
            clusterings_refuse=False,
        ),
        Outcome.COMMIT_CONFLICT: Meaning(
            "Run the job again: another writer committed the same files first.",
            title="Conflict",
            error=errors.WriteConflictError,
            has_rival=True,
            is_conflict=True,
            is_wasted=True,
        ),
        Outcome.YIELDED: Meaning(
            "Nothing to do: the task is queued behind the earlier writer of the same files.",
            title="Queued behind",
            error=errors.WriteConflictError,
            has_rival=True,
            is_wasted=True,
        ),
        Outcome.LOCK_TIMEOUT: Meaning(
            "Look which writer holds Hudi's lock and whether its service answers; run again.",
            title="Lock time-out",
            error=errors.LockTimeoutError,
            is_wasted=True,
            explains_clean=True,
        ),
        Outcome.HEARTBEAT_EXPIRED: Meaning(
            "Run the job again; look for long collections or a slow storage.",
            title="Heartbeat expired",
            error=errors.HeartbeatExpiredError,
            is_wasted=True,
        ),
        Outcome.COMMIT_REFUSED: Meaning(
            "Nothing to do if the task is retried: nothing was committed. If it happens again, look "
            "whether the task's processes pause, or reach the lock service or the storage too late; or "
            "raise the lease's time to live.",
            title="Commit refused",
            error=errors.CommitRefusedError,
            is_wasted=True,
        ),
        Outcome.ROLLED_BACK: Meaning(
            "Find the writer without optimistic concurrency control that rolled this one back (its "
            "rollback is in the timeline) and configure it before running again.",
            title="Rolled back",
            error=errors.RolledBackError,
            is_wasted=True,
        ),
        Outcome.CLUSTERING_CONFLICT: Meaning(
            "Let the pending clustering end, or roll it back; then run again.",
            title="Clustering conflict",
            error=errors.WriteConflictError,
            has_rival=True,
            is_conflict=True,
            is_wasted=True,
            writers_refuse=False,
        ),
        Outcome.MISCONFIGURATION: Meaning(
            "Correct the setting that the lines name; running again does not help.",
            title="Misconfiguration",
            error=errors.MisconfigurationError,
            may_have_committed=True,  # without Hudi's check
            explains_clean=True,
        ),
        Outcome.HUDI_ERROR: Meaning(
            "Look at the table (airflow hudi doctor) and at the line before running again.",
            title="Hudi error",
            error=errors.HudiError,
        ),
        Outcome.JOB_ERROR: Meaning(
            "Correct the job's own error.", title="Job error", error=errors.JobError
        ),
        Outcome.KILLED: Meaning(
            "Find out what killed the driver (memory limit, operator, host); run again.",
            title="Killed",
            error=errors.DriverKilledError,
            explains_clean=True,
        ),
        Outcome.ENDED: Meaning(
            "Nothing to do if the task was marked or cleared; else find out what stopped its worker.",
            title="Ended by Airflow",
            error=errors.TaskEndedError,
        ),
        Outcome.TIMED_OUT: Meaning(
            "Look in the log what the driver waited for, or raise the task's execution_timeout.",
            title="Timed out",
            error=errors.ExecutionTimeoutError,
        ),
        Outcome.NOT_STARTED: Meaning(
            "Look for a lack of memory, disk space or network where the driver ran.",
            title="Not started",
            error=errors.DriverNotStartedError,
        ),
        Outcome.UNKNOWN: Meaning(
            "Look for the commit in the table's timeline before running again.",
            may_have_committed=True,
        ),
    }
)
"""All that is said of each outcome; a new outcome is one entry here."""


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
        return self.advice or MEANINGS[self.outcome].remedy


def timeout_line(limit: timedelta | None) -> str:
    """Return the reason to end a driver whose task has timed out."""
    return f"the task's execution_timeout{f' of {limit}' if limit else ''} is over"


def was_killed(exit_code: int) -> bool:
    """Whether an exit code shows that a signal ended the driver or its program."""
    return exit_code < 0 or exit_code in _KILLED


_TITLES = [meaning.title for meaning in MEANINGS.values() if meaning.title]
_SENTENCE = re.compile(
    rf"(?:{'|'.join(_TITLES)}): .* (?:s|min|h) (?:of Spark time )?{re.escape(WASTED)}.*"
    r"|commit state unknown: .*"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """The facts about a failed attempt that a person needs.

    :param rival: requested time of the instant that it lost to.
    :param writer: the rival's DAG and task, or ``UNSIGNED``; empty if the table does not show it.
    :param partitions: where the two conflicted.
    :param file_groups: how many file groups both wrote; 0 if the table does not show it.
    :param next_try: what happens next to the task, such as ``queued on those partitions``.
    :param cause: the decisive line, for any failure but a conflict of two commits.
    """

    outcome: Outcome
    instant: str | None = None
    rival: str | None = None
    writer: tuple[str, ...] | str = ""
    partitions: tuple[str, ...] = ()
    file_groups: int = 0
    seconds: float | None = None
    next_try: str = ""
    cause: str = ""


def sentence(failure: Failure) -> str:
    """Return the failure in one line of fewer than ``LIMIT`` characters."""
    lines = (_assembled(failure, step) for step in range(_STEPS))
    line = next((line for line in lines if len(line) < LIMIT), None)
    return line or brief(_assembled(failure, _STEPS))


def is_sentence(line: str) -> bool:
    """Whether a line of a log describes a failed attempt."""
    return _SENTENCE.fullmatch(line) is not None


def wasted(line: str) -> str:
    """Return how long a failed driver ran, as its line in a log says; else empty."""
    match = _WASTED.search(line) if is_sentence(line) else None
    return match[1] if match else ""


def brief(text: str, limit: int = LIMIT) -> str:
    """Return the beginning of a text, in one line of fewer than ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) < limit else f"{line[: limit - 2].rstrip()}…"


def unrepeated(lines: Iterable[str]) -> list[str]:
    """Return the lines without those whose text an earlier line contains.

    An exception's text often repeats that of its cause.
    """
    unique: list[str] = []
    for line in lines:
        said = _LEADING.sub("", line)
        if not any(said in other for other in unique):
            unique.append(line)
    return unique


def _assembled(failure: Failure, step: int) -> str:
    """Return the line, shortened by a number of steps."""
    ends = [_cost(failure, step), _next_try(failure, step)]
    end = "".join(f" {part}" for part in ends if part)
    begin = f"{MEANINGS[failure.outcome].title or failure.outcome}: {_what(failure, step)}"
    if not failure.rival:  # the cause may be of any length
        begin = brief(begin, max(LIMIT - len(end) - 1, LIMIT // 3))
    return f"{begin}{'' if begin.endswith(('.', '…')) else '.'}{end}"


def _what(failure: Failure, step: int) -> str:
    if failure.outcome is Outcome.EARLY_CONFLICT and not failure.rival:
        return f"{_own(failure, step)} met another writer of the same files"
    if not failure.rival:
        return _cause(failure, step)
    lost = "gave way to" if failure.outcome is Outcome.YIELDED else "lost to"
    written = _writer(failure, step)
    return f"{_own(failure, step)} {lost} {failure.rival}{written}{_where(failure, step)}"


def _own(failure: Failure, step: int) -> str:
    return f"{'instant ' if step < 2 else ''}{failure.instant or 'the write'}"


def _cause(failure: Failure, step: int) -> str:
    cause = _PACKAGE.sub("", _LEADING.sub("", " ".join(failure.cause.split()))) or "no reason was logged"
    instant = failure.instant
    return cause if step > 3 or not instant or instant in cause else f"instant {instant}: {cause}"


def _writer(failure: Failure, step: int) -> str:
    if not failure.writer or step > 7:
        return ""
    length = {6: 16, 7: 10}.get(step, 24 if step > 4 else LIMIT)
    names = failure.writer if isinstance(failure.writer, tuple) else (failure.writer,)
    named = spell_owner(_elided(name, length) for name in names)
    by = "written by " if isinstance(failure.writer, tuple) else ""
    return f", {by}{named}{',' if failure.file_groups else ''}" if step < 3 else f" ({named})"


def _where(failure: Failure, step: int) -> str:
    if not failure.file_groups:
        return ""
    groups = f"{failure.file_groups} file group{'s' if failure.file_groups > 1 else ''}"
    if not any(failure.partitions):  # an unpartitioned table has one partition with an empty name
        return f" in {groups}"
    if step > 6:
        several = len(failure.partitions) > 1
        return f" in {len(failure.partitions)} partition{'s' if several else ''}"
    shown = 3 if step < 1 else (2 if step < 5 else 1)
    return f" in {listed(failure.partitions, shown, 24 if step > 5 else 40)} ({groups})"


def listed(texts: Sequence[str], shown: int, length: int) -> str:
    """Return the first names of several as text; a long one without its middle.

    :param shown: how many; the others are counted.
    """
    names = [_elided(name, length) for name in texts[:shown]]
    more = len(texts) - shown
    names += [f"{more} more"] if more > 0 else []
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _cost(failure: Failure, step: int) -> str:
    if failure.seconds is None:
        return ""
    return f"{_span(failure.seconds)} {'of Spark time ' if step < 1 else ''}{WASTED}"


def _next_try(failure: Failure, step: int) -> str:
    if not failure.next_try:
        return ""
    follows = failure.next_try if step < 4 else failure.next_try.replace("those partitions", "them")
    return f"Next try: {follows}."


def _span(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _elided(name: str, length: int) -> str:
    """Return a name without its middle, since both ends distinguish names."""
    name = " ".join(name.split())
    if len(name) <= length:
        return name
    head = (length - 1) // 2
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"
