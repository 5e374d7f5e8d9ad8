"""Pure: from what our runner reports of a driver to the attempt's outcome.

The runner reports whether the driver is protected, what Hudi logs, the exceptions that ended the job,
and the end. Hudi's records show the rest (``OwnInstants``): the requested instants, whether conflicts
were checked, and, as the commit's transaction starts, that all markers are made. Whether the attempt
committed is for the table to decide (``attempts.settle``).

What a driver prints is read too, where the task has it: what failed before the runner started, and
Hudi's records if the runner cannot follow their loggers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from airflow_occ_provider.attempts.log.facts import Chain, Entry, Fact, fatal_chain, follows_record_start
from airflow_occ_provider.attempts.log.hudi_failures import (
    Diagnosis,
    diagnose,
    diagnose_conflict,
    marked_instant,
)
from airflow_occ_provider.attempts.outcome import MEANINGS, LogReading, Outcome, was_killed

_TIME = r"\d{14,20}"
_REQUESTED = re.compile(
    rf"(?:Creating a new instant|Requesting Rollback with instant time) "
    rf"\[==>({_TIME})__(\w+)__REQUESTED\]"
)
_MENTIONED = re.compile(
    rf"\[(?:==>)?({_TIME})(?:__{_TIME})?__(\w+?)__(?:REQUESTED|INFLIGHT|COMPLETED)\]"
)
_ROLLBACK = re.compile(rf"\[==>({_TIME})__rollback__")
_FILE_MADE = re.compile(
    rf"Created? new file for toInstant[ ?:]+(\S*/)({_TIME})(?:_{_TIME})?"
    r"\.(\w+(?:\.inflight)?)(?!\w|\.\w)"
)
_TAKEN = re.compile(rf"(?=.*(?:Failed to create file|already exists)).*/({_TIME})\.\w+\.requested(?!\w)")
_TRANSACTION = re.compile(
    rf"(?:Transaction|State change) starting for Option\{{val=\[==>({_TIME})__(\w+)__INFLIGHT\]\}}"
)
_TRANSACTION_END = re.compile(
    r"(?:Transaction|State change) ending (?:with transaction owner|for action instant) "
    rf"Option\{{val=\[==>({_TIME})__(\w+)__INFLIGHT\]\}}"
)
# The JVM prints two lines for a thread that died, so one line in a job's own message does not match.
_HEARTBEAT_DIED = re.compile(
    r'Exception in thread "Timer-\d+" org\.apache\.hudi\.exception\.HoodieHeartbeatException: '
    rf"Unable to generate heartbeat for instant ({_TIME})"
)
_HEARTBEAT_FRAME = re.compile(r"\s*at org\.apache\.hudi\.client\.heartbeat\.HoodieHeartbeatClient\W")
_CONFLICT = re.compile(
    r"first operation = .*?instantTime='?(\d+).*second operation = .*?instantTime='?(\d+)"
)
# Logged by each write, also of the metadata table, just after its comparison point (Hudi 0.15.0 to
# 1.2.0, ``BaseHoodieWriteClient.preWrite``).
_COMPARED = (
    "The HoodieWriteClient is not configured to auto & async clean. Async clean service will not start"
)
_CHECKED = "Successfully resolved conflicts, if any"
_WRITES = ("commit", "deltacommit", "replacecommit")
_MOST_CONFLICTS = 20
_APPLICATION = re.compile(
    r"(?:Submitted application (?=application_)|Connected to Spark cluster with app ID )([\w-]+)"
)
_EXIT_UNPROTECTED = 78  # as in ``in_driver/run_job.py``
_KILLED = -9
_UNPROVEN = (
    "exit code 0 is not the driver's: its log does not show that it was protected, as if "
    "spark-submit, or a wrapper of it, had started the job elsewhere"
)
# What spark-submit prints if it fails before the runner starts.
_FAILURE = re.compile(r'(?:Exception in thread "[^"]*" )?[\w.$]*(?:Exception|Error)\b')


def operations_in(line: str) -> tuple[str, str] | tuple[None, None]:
    """Return the loser and the winner of a conflict that a line of Hudi names."""
    match = _CONFLICT.search(line)
    return (match[1], match[2]) if match else (None, None)


@dataclass(slots=True)
class OwnInstants:
    """Collects the instants of a driver and their conflicts, line by line.

    Decisions to end a driver, or to change an instant, use ``times`` and ``dead_timers``: lines of
    loggers and of the JVM, never a line that a job has printed.

    :param conflicts: the lines in which Hudi named two operations in conflict, by the loser's time, the
        last one last. Of very many, the first are forgotten.
    :param checked: the writes for which Hudi's check for conflicts passed.
    :param has_other_checks: whether a check passed, and the records do not show of which write; or may
        have, as records are missing.
    :param requested: requested times of the instants, of any action, that the driver requested.
    :param committing: the writes that have made all markers and reached their commit. Hudi checks
        their heartbeats just before, and not again (Hudi 0.15.0 to 1.2.0,
        ``BaseHoodieWriteClient.commitStats``).
    :param compared: the writes for which Hudi has taken the point from which it compares, as far as
        the records name their threads.
    :param taken: the writes whose request the driver could not make: another writer has their time.
    :param dead_timers: the writes whose heartbeat timers died; Hudi never restarts one. A storage error
        causes that until Hudi 1.2 (``HoodieHeartbeatClient.updateHeartbeat``).
    :param tables: the table in which the driver began each of its instants, as Hadoop prints it.
    """

    conflicts: dict[str, str] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    has_other_checks: bool = False
    requested: set[str] = field(default_factory=set)
    committing: set[str] = field(default_factory=set)
    compared: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    dead_timers: set[str] = field(default_factory=set)
    tables: dict[str, str] = field(default_factory=dict)
    _actions: dict[str, str] = field(default_factory=dict)
    _logged: list[str] = field(default_factory=list)
    _completed: dict[str, str] = field(default_factory=dict)
    _inflight: set[str] = field(default_factory=set)
    _dying: str = ""
    _newest: dict[str, str] = field(default_factory=dict)
    _created: set[str] = field(default_factory=set)
    _run: set[str] = field(default_factory=set)
    _transactions: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def feed(self, line: str, thread: str = "") -> None:
        """Take the next line of the log.

        :param thread: of the JVM that logged it, if that is known.
        """
        if "instant" in line.lower() or "]" in line:
            self._note_request(line, thread)
            self._note_file(line)
            self._note_transaction(line, thread)
        if "operation = " in line and "instantTime=" in line:
            self._note_conflict(line.strip())
        elif _CHECKED in line and follows_record_start(line, line.index(_CHECKED)):
            self._note_check(thread)
        elif thread and _COMPARED in line:
            self._note_comparison(thread)
        self.feed_error(line)
        if "eartbeat" in line:
            self._note_heartbeat(line)

    def feed_printed(self, line: str) -> None:
        """Take the next printed line of a log whose Hudi records the runner reports.

        What looks like a record may be one of another driver, whose log the job prints.
        """
        self.feed_error(line)
        if "eartbeat" in line:
            self._note_heartbeat(line)

    def feed_error(self, line: str) -> None:
        """Take a line, or the message of an exception."""
        if ".requested" in line:
            self.taken.update(_TAKEN.findall(line))

    @property
    def times(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has requested, oldest first.

        One that it could not request, since another writer has its time, is that writer's.
        """
        # Asked for at each line of the log: a difference of sets would walk all writes of a stream.
        others = {time for time in self.taken if time not in self.tables and time not in self._completed}
        return tuple(
            time for time in self._logged if self._actions.get(time) in _WRITES and time not in others
        )

    @property
    def completed(self) -> str | None:
        """The line that shows the last of them completed, if it was."""
        times = self.times
        return self._completed.get(times[-1]) if times else None

    def has_completed(self, instant: str) -> bool:
        """Whether the records show that the driver completed one of ``times``."""
        return instant in self._completed

    def was_checked(self, instant: str) -> bool:
        """Whether Hudi's check for conflicts passed for one of ``times``, or may have."""
        return instant in self.checked or self.has_other_checks

    @property
    def unchecked(self) -> str | None:
        """The line of the first completed write for which no check passed.

        Hudi 0.15 names a clustering as it names an overwrite, and commits it unchecked after a write.
        """
        return next(
            (
                self._completed[time]
                for time in self.times
                if time in self._completed
                and not self.was_checked(time)
                and not (self.checked and self._actions[time] == "replacecommit")
            ),
            None,
        )

    def rival_of(self, instant: str) -> str | None:
        """Return the instant that Hudi named as the winner over ``instant``, if any."""
        return operations_in(self.conflicts.get(instant, ""))[1]

    @property
    def unfinished_conflict(self) -> str | None:
        """The last conflict of those that own writes have lost for good."""
        loser = next(filter(self.has_lost, reversed(self.conflicts)), None)
        return self.conflicts[loser] if loser else None

    def has_lost(self, instant: str) -> bool:
        """Whether an own write lost a conflict, and no later write made up for it.

        A write that completes makes up for those that the job began before it in the same table.
        """
        times = self.times
        if instant not in self.conflicts or instant not in times:
            return False
        table = self.tables.get(instant)
        later = (time for time in times[times.index(instant) :] if time in self._completed)
        return not any(table is None or self.tables.get(time, table) == table for time in later)

    def _note_conflict(self, line: str) -> None:
        loser, _ = operations_in(line)
        if loser:
            self.conflicts.pop(loser, None)
            self.conflicts[loser] = line
            if len(self.conflicts) > _MOST_CONFLICTS:
                del self.conflicts[next(iter(self.conflicts))]

    def _note_request(self, line: str, thread: str) -> None:
        requested = self._count_request(line)
        if requested:  # an instant of the metadata table has the time of the table's
            self._newest[thread] = "" if requested[1] in self._created else requested[1]
            self._created.add(requested[1])
        if (
            requested
            and not requested[1].startswith("0000")
            and requested[1] not in self._logged
            and follows_record_start(line, requested.start())
        ):
            self._logged.append(requested[1])
        for time, action in _MENTIONED.findall(line):
            self._actions.setdefault(time, action)

    def _count_request(self, line: str) -> re.Match[str] | None:
        """Return a line's request; count its instant as own, unless it is a rollback that ran before.

        A driver also finishes rollbacks that others have requested, and then requests one of the same
        time for the metadata table (Hudi 1.2.0, ``HoodieBackedTableMetadataWriter.update``).
        """
        requested = _REQUESTED.search(line)
        if requested is None:
            self._run.update(_ROLLBACK.findall(line))
        elif requested[1] not in self._run and not requested[1].startswith("0000"):
            self.requested.add(requested[1])
        return requested

    def _note_comparison(self, thread: str) -> None:
        """Count the line for what its thread requested last, if that is the only write that has begun.

        A table service, and a write to the metadata table, logs it as well.
        """
        begun = [time for time in self.times if time not in self._inflight | self.compared]
        if begun == [self._newest.get(thread)]:
            self.compared.update(begun)

    def _note_file(self, line: str) -> None:
        made = _FILE_MADE.search(line)
        if made and "/.hoodie/metadata/" not in made[1]:
            if made[3].endswith("inflight"):
                self._inflight.add(made[2])
                self.tables[made[2]] = made[1].partition("/.hoodie/")[0]
            elif made[3] in _WRITES and follows_record_start(line, made.start()):
                self._completed[made[2]] = line.strip()

    def _note_transaction(self, line: str, thread: str) -> None:
        opened = _TRANSACTION.search(line)
        # Hudi also opens one before the write.
        if opened and opened[1] in self._inflight and self._actions.get(opened[1]) == opened[2]:
            self.committing.add(opened[1])
        if not thread:
            return
        ended = None if opened else _TRANSACTION_END.search(line)
        if opened:
            self._transactions.setdefault(thread, []).append((opened[1], opened[2]))
        elif ended and (ended[1], ended[2]) in self._transactions.get(thread, ()):
            # One whose lock was not acquired has no end.
            while self._transactions[thread].pop() != (ended[1], ended[2]):
                pass

    def _note_check(self, thread: str) -> None:
        """Count a passed check for the write whose transaction its thread is in.

        A transaction of the metadata table has the time of the table's, and is a deltacommit. If the
        records do not name threads, the check may be of each write that is in its commit.
        """
        transactions = self._transactions.get(thread)
        if transactions:
            time, action = transactions[-1]
            if action != "deltacommit" or self._actions.get(time) == action:
                self.checked.add(time)
            return
        writes = self.committing.difference(self._completed)
        self.checked.update(writes)
        self.has_other_checks = self.has_other_checks or not writes

    def _note_heartbeat(self, line: str) -> None:
        died = _HEARTBEAT_DIED.match(line)
        if died:
            self._dying = died[1]
        elif self._dying and _HEARTBEAT_FRAME.match(line):
            self.dead_timers.add(self._dying)
            self._dying = ""


class DriverLog:
    """Reads what comes from a driver of ours.

    Its memory does not grow with that. ``application_id`` is the job's id at the cluster manager,
    empty until the log shows it; ``instants`` is what Hudi's records show; ``end`` is the exit code that
    the runner reported, ``None`` while it has reported none. If the runner cannot follow Hudi's loggers,
    their records are read as they are printed.
    """

    def __init__(self) -> None:
        self.application_id = ""
        self.instants = OwnInstants()
        self.protected = False
        self.unprotected: str | None = None
        self.fatal: Chain | None = None
        self.reports = False
        self.end: int | None = None
        self._end_is_certain = False
        self.reports_end = False
        self._followed = False
        self._failure = ""

    def take(self, entry: Entry) -> None:
        """Take what comes from the driver: a fact, or a line that is none."""
        if not isinstance(entry, str):
            self._take(entry)
            return
        line = entry.rstrip("\r\n")
        if not (self.reports or self._failure) and _FAILURE.match(line):
            self._failure = line
        (self.instants.feed_printed if self._followed else self.instants.feed)(line)
        if "appl" in line or "app ID" in line:
            named = _APPLICATION.search(line)
            self.application_id = named[1] if named else self.application_id

    def _take(self, fact: Fact) -> None:
        match fact["fact"]:
            case "protected":
                self.protected = self.reports = True
                self._followed = fact.get("followed") is True
                self.reports_end = fact.get("reports_end") is True
            case "not_protected":
                self.unprotected = f"not protected: {fact.get('reason')}"
            case "fatal":
                self.fatal = fatal_chain(fact)
                for line in self.fatal.lines:
                    self.instants.feed_error(line)
            case "left_out" | "followed_again":  # the check of a write may be among what is missing
                self.instants.has_other_checks = True
            case "end":
                self.end = int(fact.get("exit_code", 1))
                self._end_is_certain = fact.get("is_certain") is True
            case "hudi":
                self._take_record(fact)

    def _take_record(self, fact: Fact) -> None:
        for line in str(fact.get("message", "")).splitlines():
            logged = f"INFO {fact.get('logger', '')}: {line}"
            self.instants.feed(logged, str(fact.get("thread", "")))

    @property
    def shows_driver(self) -> bool:
        """Whether the runner has started, so that the driver ran."""
        return bool(self.protected or self.unprotected or self.fatal or self.own_instants)

    @property
    def has_finished(self) -> bool:
        """Whether a guarded job has ended well, and certainly commits nothing any more.

        One that caught a conflict has a write to be settled first.
        """
        is_closed = self.protected and not self.unprotected and self._end_is_certain
        return is_closed and self.end == 0 and not self.instants.unfinished_conflict

    @property
    def own_instants(self) -> tuple[str, ...]:
        """Requested times of the writes that the driver has requested so far."""
        return self.instants.times

    def exit_code(self, code: int, *, is_read: bool = True) -> int:
        """Return a driver's exit code; what its runner reported overrules a 0.

        A wrapper of ``spark-submit``, such as one that ends in ``| tee``, returns a code of its own. A
        runner that has promised to report each end, and has not, was ended with its driver.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end.
        """
        if code:
            return code
        if self.unprotected:
            return _EXIT_UNPROTECTED
        if self.end is not None:
            return self.end
        if self.fatal:
            return 1
        return _KILLED if self.reports_end and is_read else 0

    def unproven(self, code: int, *, is_read: bool = True) -> str:
        """Return why exit code 0 is not the driver's own; empty if it is.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end, so that what it lacks did not happen.
        """
        return "" if code or self.protected or self.unprotected or not is_read else _UNPROVEN

    def outcome_of(self, code: int, *, is_read: bool = True) -> tuple[int, LogReading]:
        """Return the exit code of a service's driver, and what its log says.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end.
        """
        unproven = self.unproven(code, is_read=is_read)
        if unproven:
            return _EXIT_UNPROTECTED, LogReading(Outcome.MISCONFIGURATION, lines=(unproven,))
        code = self.exit_code(code, is_read=is_read)
        return code, self.read(code).without_commit

    def ended_well(self, code: int, *, is_read: bool = True, was_stopped: bool = False) -> bool:
        """Whether the job ran to its end.

        What happens after the runner has reported that does not count: a driver that is then stopped,
        or killed while Spark shuts down, has done its work.

        :param code: as the submitter observed it, negative for a signal.
        :param is_read: whether the log was read to its end.
        :param was_stopped: whether a guard ended the driver.
        """
        if self.end is not None and not self.unprotected:
            return self.end == 0 and (not code or was_killed(code))
        return not was_stopped and not self.exit_code(code, is_read=is_read)

    def read(self, exit_code: int | None = None) -> LogReading:
        """Return the attempt's outcome, for an attempt without a commit.

        :param exit_code: the driver's, negative for a signal; by default the one that its runner
            reported, if any.
        """
        exit_code = self.end if exit_code is None else exit_code
        death = None if exit_code == 0 else self.fatal
        diagnosis, lines = self._decide(exit_code, death)
        reading = reading_of(self.instants, diagnosis, lines, self._named_instant())
        return replace(reading, died=death is not None)

    def _decide(self, exit_code: int | None, death: Chain | None) -> tuple[Diagnosis, tuple[str, ...]]:
        if self.unprotected:
            # The error's one line has no room for a statement of SQL and what to do about it.
            remedy = f"Correct this; running again does not help: {self.unprotected}."
            return Diagnosis(Outcome.MISCONFIGURATION, remedy=remedy), (self.unprotected,)
        if exit_code is not None and was_killed(exit_code):
            return Diagnosis(Outcome.KILLED), (f"exit code {exit_code}",)
        diagnosis, lines = Diagnosis(Outcome.UNKNOWN), tuple(death.lines if death else ())
        if death:
            diagnosis = diagnose(death.causes, self.own_instants)
        elif exit_code:
            diagnosis, lines = Diagnosis(Outcome.JOB_ERROR), (self._failure or f"exit code {exit_code}",)
        # Hudi has refused an unfinished write, even if the job has handled that.
        conflict = self.instants.unfinished_conflict
        if not conflict:
            return diagnosis, lines
        new = () if conflict in lines else (conflict,)
        if diagnosis.outcome is Outcome.COMMIT_CONFLICT:
            return diagnosis, lines + new
        if not (death or exit_code):  # whether the job went on well only the table can show
            return diagnosis, new
        is_better = diagnosis.outcome in (Outcome.JOB_ERROR, Outcome.UNKNOWN) and not diagnosis.by_row
        return (diagnose_conflict(conflict), new + lines) if is_better else (diagnosis, lines)

    def _named_instant(self) -> str | None:
        """Return the own instant that the exceptions name which ended the job."""
        fatal = self.fatal or Chain()
        marked = (marked_instant(line) for line in reversed(fatal.lines))
        return diagnose(fatal.causes).instant or next(filter(None, marked), None)


def reading_of(
    instants: OwnInstants, diagnosis: Diagnosis, lines: Sequence[str], named: str | None
) -> LogReading:
    """Return the outcome of a driver with what its log says of its instants.

    :param lines: that decide, as they were logged.
    :param named: the own instant that another line names, for a log without Hudi's records.
    """
    loser, winner = next(filter(any, map(operations_in, lines)), (None, None))
    requested = instants.times
    written = loser if loser in requested else next(reversed(requested), loser)
    last_lost = next(reversed(instants.conflicts), None)
    dead = max(instants.dead_timers, default=None)
    return LogReading(
        diagnosis.outcome,
        instant=written or diagnosis.instant or named or last_lost or dead,
        rival=(winner or diagnosis.rival) if MEANINGS[diagnosis.outcome].has_rival else None,
        lines=tuple(lines),
        cause=diagnosis.cause,
        advice=diagnosis.remedy,
        own_instants=requested,
        conflict_checked=instants.was_checked(requested[-1]) if requested else None,
    )
