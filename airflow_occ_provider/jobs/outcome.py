"""Pure: from a Spark driver's log and exit code to the outcome of the attempt.

A log decides how an attempt failed. Whether it committed is the table's to say
(``jobs.settle``); from the log alone an attempt is ``committed`` only where Hudi's own line of
the completed instant is there. An exception counts if the program died of it: one in a log
record, in another's message, or printed by a program that lived on does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from airflow_occ_provider.jobs.traces import Cause, Trace, TraceReader


class Outcome(StrEnum):
    """What one run of a Spark job came to."""

    COMMITTED = "committed"
    NOTHING_WRITTEN = "nothing_written"
    EARLY_CONFLICT = "early_conflict"
    COMMIT_CONFLICT = "commit_conflict"
    LOCK_TIMEOUT = "lock_timeout"
    HEARTBEAT_EXPIRED = "heartbeat_expired"
    ROLLED_BACK = "rolled_back"
    CLUSTERING_CONFLICT = "clustering_conflict"
    MISCONFIGURATION = "misconfiguration"
    JOB_ERROR = "job_error"
    KILLED = "killed"
    UNKNOWN = "unknown"


REMEDIES = {
    Outcome.COMMITTED: "Nothing to do.",
    Outcome.NOTHING_WRITTEN: "Nothing to do, unless the job should have written.",
    Outcome.EARLY_CONFLICT: "Run the job again after the other writer of these files has ended.",
    Outcome.COMMIT_CONFLICT: "Run the job again: another writer committed the same files first.",
    Outcome.LOCK_TIMEOUT: "Look who holds Hudi's lock and whether its service answers; run again.",
    Outcome.HEARTBEAT_EXPIRED: "Run the job again; look for long collections or a slow storage.",
    Outcome.ROLLED_BACK: "Find the writer without optimistic concurrency control that rolled this one "
    "back (its rollback is in the timeline) and configure it before running again.",
    Outcome.CLUSTERING_CONFLICT: "Let the pending clustering end, or roll it back; then run again.",
    Outcome.MISCONFIGURATION: "Correct the setting that the lines name; running again does not help.",
    Outcome.JOB_ERROR: "Correct the job's own error.",
    Outcome.KILLED: "Find out who killed the driver (memory limit, operator, host); run again.",
    Outcome.UNKNOWN: "Look for the commit in the table's timeline before running again.",
}

UNCHECKED = (
    "Hudi's check for conflicts did not run before the commit: the job changed its concurrency mode"
)
_KILLED = frozenset({129, 130, 131, 134, 137, 143})

_TIME = r"\d{14,20}"
_REQUESTED = re.compile(
    rf"(?:Creating a new instant|Requesting Rollback with instant time) "
    rf"\[==>({_TIME})__(\w+)__REQUESTED\]"
)
_MENTIONED = re.compile(
    rf"\[(?:==>)?({_TIME})(?:__{_TIME})?__(\w+?)__(?:REQUESTED|INFLIGHT|COMPLETED)\]"
)
_FILE_MADE = re.compile(
    rf"Created? new file for toInstant\W+(\S*/)({_TIME})(?:_{_TIME})?\.(\w+(?:\.inflight)?)(?!\w|\.\w)"
)
_HEARTBEAT_DIED = re.compile(
    r'Exception in thread "Timer-\d+" org\.apache\.hudi\.exception\.HoodieHeartbeatException: '
    rf"Unable to generate heartbeat for instant ({_TIME})"
)
_TRANSACTION = re.compile(
    rf"(?:Transaction|State change) starting for Option\{{val=\[==>({_TIME})__(\w+)__INFLIGHT\]\}}"
)
_OPERATIONS = re.compile(
    r"first operation = .*?instantTime=(\d+).*second operation = .*?instantTime=(\d+)"
)
_CHECKED = "Successfully resolved conflicts, if any"
_APPLICATION = re.compile(
    r"(?:Submitted application (?=application_)|Connected to Spark cluster with app ID )([\w-]+)"
)
_WRITES = ("commit", "deltacommit", "replacecommit")
# Where the driver's log ends in a task's log: what our operator, and what Airflow, writes next.
_SETTLED = re.compile(r"Outcome: \w+ \(instant \S+, exit code (-?\d+)\)\.")
_TASK_FAILED = re.compile(r"Task failed with exception(?:.*Error code is: (-?\d+))?")

# The class or the message that decides, most telling first (HUDI 0.15.0 to 1.2.0).
_SIGNATURES: tuple[tuple[Outcome, re.Pattern[str]], ...] = (
    (Outcome.EARLY_CONFLICT, re.compile(r"\S*\.HoodieEarlyConflictDetectionException\b")),
    (Outcome.CLUSTERING_CONFLICT, re.compile(r"\S*\.HoodieClusteringUpdateException\b")),
    (Outcome.COMMIT_CONFLICT, re.compile(r"\S*\.HoodieWriteConflictException\b")),
    (
        Outcome.ROLLED_BACK,
        re.compile(rf"\S+: .*/{_TIME}(?:\.\w+)?\.(?:inflight|requested) does not exist"),
    ),
    (Outcome.HEARTBEAT_EXPIRED, re.compile(r"\S+: Heartbeat for instant \d+ has expired")),
    (
        Outcome.MISCONFIGURATION,
        re.compile(
            r"\S+: (?:Property hoodie\.write\.lock\S* not found|To use early conflict detection, set"
            r"|Non-blocking concurrency control requires|Config conflict"
            r"|Cannot bootstrap the table in multi-writer mode)"
        ),
    ),
    (
        Outcome.LOCK_TIMEOUT,
        re.compile(r"\S*\.HoodieLockException\b|\S+: Unable to instantiate class \S*LockProvider"),
    ),
)


class Stop(NamedTuple):
    """Why we have ended a driver ourselves.

    :param outcome: what its attempt came to, unless the table says that it committed.
    :param line: the reason, in words.
    """

    outcome: Outcome
    line: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What the log alone tells of an attempt.

    :param outcome: see ``Outcome``; ``unknown`` where only the table could tell.
    :param instant: requested time of the attempt's last own write, where the log shows it.
    :param rival: requested time of the instant that it conflicted with, where Hudi named it.
    :param lines: the lines that decided, as they were logged.
    :param own_instants: requested times of all writes that the driver asked for, oldest first.
    :param died: whether the log shows the exception that the program died of.
    :param conflict_checked: whether Hudi's check for conflicts was logged; ``None`` where the log
        does not show what Hudi does at all.
    """

    outcome: Outcome
    instant: str | None = None
    rival: str | None = None
    lines: tuple[str, ...] = ()
    own_instants: tuple[str, ...] = ()
    died: bool = False
    conflict_checked: bool | None = None

    @property
    def remedy(self) -> str:
        """What to do about it."""
        return REMEDIES[self.outcome]


def was_killed(exit_code: int) -> bool:
    """Whether a driver's exit code says that a signal ended it, or its Python program."""
    return exit_code < 0 or exit_code in _KILLED


class DriverLog:
    """Reads a driver's log as it streams; its memory does not grow with the log.

    ``application_id`` is what the cluster manager calls the job, empty while the log has not told.
    """

    def __init__(self) -> None:
        self.application_id = ""
        self._traces = TraceReader()
        self._actions: dict[str, str] = {}
        self._requested: list[str] = []
        self._completed: dict[str, str] = {}
        self._inflight: set[str] = set()
        self._committing: set[str] = set()
        self._unbeaten: set[str] = set()
        self._conflict: str | None = None
        self._checked = False
        self._protected = False
        self._unprotected: str | None = None
        self._ended = False
        self._exit_code: int | None = None

    def feed(self, raw: str) -> None:
        """Take the next line of the log; a saved one through ``log_lines.unwrap`` first."""
        line = raw.rstrip("\r\n")
        ended = _SETTLED.fullmatch(line) or _TASK_FAILED.match(line)
        if ended and ended[1] and self._exit_code is None:
            self._exit_code = int(ended[1])
        self._ended = self._ended or ended is not None
        if self._ended:
            return
        self._traces.feed(line)
        if "instant" in line.lower() or "]" in line:
            self._note_instants(line)
        self._note(line)

    def _note(self, line: str) -> None:
        if "operation = " in line and "instantTime=" in line:
            self._conflict = line.strip()
        elif "appl" in line or "app ID" in line:
            told = _APPLICATION.search(line)
            self.application_id = told[1] if told else self.application_id
        elif _CHECKED in line:
            self._checked = True
        elif "to generate heartbeat" in line:
            self._unbeaten.update(_HEARTBEAT_DIED.findall(line))
        elif line.startswith("airflow_occ_provider: protected: "):
            self._protected = True
        elif line.startswith("airflow_occ_provider: not protected: "):
            self._unprotected = line

    @property
    def own_instants(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has asked for so far."""
        return tuple(time for time in self._requested if self._actions.get(time) in _WRITES)

    def read(self, exit_code: int | None = None, *, committed: bool | None = None) -> Reading:
        """Tell what the log says the attempt came to.

        :param exit_code: the driver's, negative for a signal; ``None`` where it is not known.
        :param committed: ``False`` where the table has told that nothing was committed.
        """
        known_code = self._exit_code if exit_code is None else exit_code
        outcome, lines = self._decide(known_code, committed)
        operations = self._named_operations(lines)
        own = self.own_instants
        return Reading(
            outcome,
            instant=own[-1] if own else operations[0],
            rival=operations[1] if outcome is Outcome.COMMIT_CONFLICT else None,
            lines=lines,
            own_instants=own,
            died=self._death(known_code) is not None,
            conflict_checked=self._checked if own else None,
        )

    def conflict_of(self, instant: str) -> str | None:
        """Return the line in which Hudi named ``instant`` as the loser of a conflict, if any."""
        return self._conflict if self.rival_of(instant) else None

    def rival_of(self, instant: str) -> str | None:
        """Return the instant that Hudi named as the winner over ``instant``, if any."""
        match = _OPERATIONS.search(self._conflict or "")
        return match[2] if match and match[1] == instant else None

    def has_requested(self, time: str) -> bool:
        """Whether the driver itself asked for an instant, of whatever action."""
        return time in self._requested

    def is_committing(self, instant: str) -> bool:
        """Whether a write has come to its commit: Hudi asks for its heartbeat just before, and no more.

        Hudi 0.15.0 to 1.2.0, ``BaseHoodieWriteClient.commitStats``.
        """
        return instant in self._committing

    def heartbeat_died(self, instant: str) -> bool:
        """Whether the timer that made a write's heartbeat died: Hudi never makes it again.

        An error of the storage does that until Hudi 1.2 (``HoodieHeartbeatClient.updateHeartbeat``).
        """
        return instant in self._unbeaten

    def _note_instants(self, line: str) -> None:
        requested = _REQUESTED.search(line)
        if requested and requested[1] not in self._requested and not requested[1].startswith("0000"):
            self._requested.append(requested[1])
        for time, action in _MENTIONED.findall(line):
            self._actions.setdefault(time, action)
        made = _FILE_MADE.search(line)
        if made and "/.hoodie/metadata/" not in made[1]:
            if made[3] in _WRITES:
                self._completed[made[2]] = line.strip()
            elif made[3].endswith("inflight"):
                self._inflight.add(made[2])
        opened = _TRANSACTION.search(line)
        # Hudi opens one before the write, too.
        if opened and opened[1] in self._inflight and self._actions.get(opened[1]) == opened[2]:
            self._committing.add(opened[1])

    def _decide(self, exit_code: int | None, committed: bool | None) -> tuple[Outcome, tuple[str, ...]]:
        completed = None if committed is False else self._completed_line()
        if completed and self._protected and not self._checked:
            return Outcome.MISCONFIGURATION, (UNCHECKED, completed)
        if completed:
            return Outcome.COMMITTED, (completed,)
        if self._unprotected:
            return Outcome.MISCONFIGURATION, (self._unprotected,)
        return self._how_it_ended(exit_code)

    def _completed_line(self) -> str | None:
        own = self.own_instants
        return self._completed.get(own[-1]) if own else None

    def _how_it_ended(self, exit_code: int | None) -> tuple[Outcome, tuple[str, ...]]:
        if exit_code is not None and was_killed(exit_code):
            return Outcome.KILLED, (f"exit code {exit_code}",)
        death = self._death(exit_code)
        if death:
            return classify(death.causes), self._deciding_lines(death)
        if exit_code:
            return Outcome.JOB_ERROR, (f"exit code {exit_code}",)
        return Outcome.UNKNOWN, ()

    def _death(self, exit_code: int | None) -> Trace | None:
        trace = self._traces.last
        if exit_code == 0 or trace is None or not trace.causes:
            return None
        if self._protected:  # what our runner did not let through, the job has caught
            return trace if trace.from_runner else None
        return trace if trace.at_top_level and not trace.output_follows else None

    def _deciding_lines(self, trace: Trace) -> tuple[str, ...]:
        found = (self._conflict,) if self._conflict and "Found conflicting" in self._conflict else ()
        return (*trace.lines, *(line for line in found if line not in trace.lines))

    def _named_operations(self, lines: Iterable[str]) -> tuple[str | None, str | None]:
        for line in lines:
            match = _OPERATIONS.search(line)
            if match:
                return match[1], match[2]
        return None, None


def classify(causes: Iterable[Cause]) -> Outcome:
    """Tell what a chain of exceptions means for a writer of a Hudi table.

    :param causes: the chain; only what the JVM threw can speak for Hudi.
    """
    chain = [cause for cause in causes if cause.jvm]
    for outcome, signature in _SIGNATURES:
        if any(signature.match(f"{cause.type}: {cause.message}") for cause in chain):
            return outcome
    if any(_is_lock_provider_missing(cause) for cause in chain):
        return Outcome.MISCONFIGURATION
    return Outcome.JOB_ERROR


def _is_lock_provider_missing(cause: Cause) -> bool:
    return cause.type == "java.lang.NullPointerException" and any(
        "ReflectionUtils" in frame or "LockManager" in frame for frame in cause.frames
    )
