"""Pure: what Hudi's records say of a driver's own writes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from airflow_occ_provider.attempts.log.lines import follows_record_start

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
