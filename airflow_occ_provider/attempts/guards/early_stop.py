"""The guards that see that a running write is in vain, or behind an earlier one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from airflow_occ_provider.attempts.guards.table_guards import TableView
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import DoomedWrite, Outcome, Stop
from airflow_occ_provider.attempts.own_writes import is_other_table
from airflow_occ_provider.hudi.conflict.strategy import (
    INDEX_OPTION,
    STRATEGY_OPTION,
    Strategy,
    strategy_of,
)
from airflow_occ_provider.hudi.conflict.verdict import Conflict
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import RETRIES_IN_JOB
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.storage.conflicts import (
    Setup,
    earlier_overlap,
    lost_conflict,
    planned_before,
    possible_winners,
)
from airflow_occ_provider.storage.snapshot import Snapshot

_MOST_QUESTIONS = 3
_PERIOD_S = 10.0
_MOST_NAMED = 3


class Announcements(Protocol):
    """The writes that run under the leases of a table's tasks, as they tell it."""

    def announce(self, instant: str) -> None:
        """Tell which write runs under the lease.

        :raises OccError: if the lease is lost, or its service does not answer.
        """

    def announced(self) -> Mapping[str, Owner]:
        """Return the owners of the writes that other tasks have announced.

        :raises LockUnreachableError: if the lock service does not answer in time.
        """


@dataclass(slots=True)
class EarlierWriter:
    """Compares a running write with the earlier pending ones of other tasks.

    Of two writes that share file groups only one can commit. Which one is a choice, no verdict: so it
    is made between tasks that announce their writes, and the one that was planned first goes on. The
    queue is asked a few times at most for the same pending writes: a foreign one is never announced.

    :param lease: of the task.
    :param rule: by which heartbeats are judged.
    :param strategy: the writers' conflict resolution strategy, if it is known.
    :param may_retry: whether the task may be tried again; if not, it never gives way.
    """

    lease: Announcements
    rule: HeartbeatRule
    strategy: Strategy | None
    may_retry: bool = True
    _told: str = field(default="", init=False)
    _asked: tuple[frozenset[str], int] = field(default=(frozenset(), 0), init=False)

    def stop(self, view: TableView, snapshot: Snapshot, ours: Instant) -> Stop | None:
        """Return the reason to end the write's driver, if there is an earlier writer.

        :raises OccError: if the lease service does not answer.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        if self._told != ours.time:
            self.lease.announce(ours.time)
            self._told = ours.time
        planned = planned_before(snapshot, ours, self._living(view, snapshot, ours))
        times = frozenset(write.time for write in planned)
        if not (self.may_retry and times) or self._asked == (times, _MOST_QUESTIONS):
            return None
        owners = self.lease.announced()
        self._asked = times, self._asked[1] + 1 if self._asked[0] == times else 1
        conflict = earlier_overlap(snapshot, ours, planned, owners, Setup(self.strategy))
        if conflict is None or not _is_still_before(snapshot, ours, conflict.rival.instant):
            return None
        return _giving_way(ours.time, conflict, owners)

    def _living(self, view: TableView, snapshot: Snapshot, ours: Instant) -> list[Instant]:
        """Return the other pending writes with a live heartbeat; nothing is read for that."""
        others = (write for write in snapshot.timeline.pending_writes() if write.time != ours.time)
        return [
            write for write in others if self.rule.judge(view.ticks.get(write.time), view.now_ms).live
        ]


def _is_still_before(snapshot: Snapshot, ours: Instant, rival: Instant) -> bool:
    """Whether a newer listing shows the same order of two profiles that were read.

    Where a file is visible before its content (Hudi 0.15 on a disk or HDFS), its time in an earlier
    listing may be that of the empty file: then each of the two could give way to the other.
    """
    return rival in planned_before(snapshot.reload(), ours, [rival])


def _giving_way(ours: str, conflict: Conflict, owners: Mapping[str, Owner]) -> Stop:
    rival = conflict.rival.instant.time
    count = len(conflict.file_groups)
    shared = f"{count} of its file groups" if count > 1 else "one of its file groups"
    line = f"{ours} gives way to the earlier {rival} of {owners[rival]}, which writes {shared}"
    return Stop(Outcome.YIELDED, line, rival, ours)


class EarlyStop(StrEnum):
    """What happens once a running write is lost, or another one goes on in its place."""

    OFF = "off"
    OBSERVE = "observe"
    """It is logged, and compared with what Hudi then does."""
    ACT = "act"
    """The driver is ended."""


def applied_mode(wanted: EarlyStop, options: Mapping[str, str], logger: Any) -> EarlyStop:
    """Return the mode that applies to a driver; log why it is off if it was wanted.

    :param options: of the driver. What a job sets in its own code is not among them.
    """
    why = _why_off(options)
    if not why or wanted is EarlyStop.OFF:
        return wanted
    logger.info("early_stop=%r is not applied to the driver: %s.", wanted.value, why)
    return EarlyStop.OFF


def log_outcomes(logger: Any, findings: Iterable[DoomedWrite | None], outcome: Outcome) -> None:
    """Log what became of a write that was found to be lost, or that was to give way.

    :param outcome: of the attempt, by the table. Only a lost write that committed is a surprise.
    """
    for finding in filter(None, findings):
        is_choice = finding.stop.outcome is Outcome.YIELDED
        level = logging.WARNING if outcome is Outcome.COMMITTED and not is_choice else logging.INFO
        verb = "chose" if is_choice else "found"
        seconds = max(time.time() - finding.found_ms / 1000, 0)
        line = "%.0f s after early_stop %s that %s: its outcome is %s."
        logger.log(level, line, seconds, verb, finding.stop.line, outcome.value)


def _why_off(options: Mapping[str, str]) -> str:
    """Return why a writer's options leave no certain verdict; empty if they do."""
    if options.get(RETRIES_IN_JOB, "0").strip() not in ("", "0"):
        return f"with {RETRIES_IN_JOB} Hudi writes again after a conflict"
    named = options.get(STRATEGY_OPTION, "").strip()
    if named and strategy_of(options) is None:
        return f"the rules of {named} are not known"
    if options.get(INDEX_OPTION, "").strip().upper() == "HBASE":
        return "an index in HBase names older files than the job has read"
    return ""


@dataclass(slots=True)
class ComparisonPoint:
    """Knows which writes were completed at a write's comparison point.

    The table does not record that point, but the driver's log shows that it is past. What a listing
    that began later does not show as completed is a rival, whenever it completes.

    :param log: of the driver.
    """

    log: DriverLog
    _write: str = field(default="", init=False)
    _past_s: float = field(default=0.0, init=False)
    _done: frozenset[str] | None = field(default=None, init=False)

    def look(self, view: TableView, snapshot: Snapshot, ours: Instant) -> None:
        """Take note of a listing; of a write, the first one after its point counts."""
        if ours.time not in self.log.instants.compared:
            return
        if self._write != ours.time:  # the view may have begun before the log showed it
            self._write = ours.time
            self._past_s = time.monotonic()
            self._done = None
        elif self._done is None and view.now_s > self._past_s:
            self._done = frozenset(write.time for write in snapshot.timeline.completed_writes())

    def unseen(self, ours: Instant, rivals: Iterable[Instant]) -> frozenset[str]:
        """Return the times of the completed rivals that it has certainly not seen."""
        if self._write != ours.time or self._done is None:
            return frozenset()
        return frozenset(rival.time for rival in rivals) - self._done


@dataclass(slots=True)
class EarlyStopGuard:
    """Compares a driver's write with those of its rivals.

    It is lost if a rival has completed that it certainly has not seen. A pending rival may still fail:
    it counts only if ``earlier`` says so. Its choice is no verdict: one that ends no driver is followed
    by the search for a certain loss. The first finding of each kind is final.

    :param mode: whether a finding ends the driver.
    :param strategy: the writers' conflict resolution strategy, if it is known.
    :param earlier: compares it with pending writes, if the task holds a lease.
    """

    log: DriverLog
    mode: EarlyStop
    strategy: Strategy | None
    logger: Any
    earlier: EarlierWriter | None = None
    point: ComparisonPoint = field(init=False)
    doomed: DoomedWrite | None = field(default=None, init=False)
    """The finding that the write is lost, once there is one."""
    choice: DoomedWrite | None = field(default=None, init=False)
    """The choice that another task's write goes on in its place, once there is one."""
    _judged: tuple[str, frozenset[str]] = field(default=("", frozenset()), init=False)
    _ended: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        self.point = ComparisonPoint(self.log)

    @property
    def danger(self) -> str:
        """What it watches, in a few words."""
        return "rivals"

    @property
    def period_s(self) -> float:
        """The longest time between two looks, in seconds."""
        return threading.TIMEOUT_MAX if self.mode is EarlyStop.OFF else _PERIOD_S

    @property
    def stop(self) -> Stop | None:
        """The reason to stop the driver, if any; known without a request."""
        first = self.choice or self.doomed
        return first.stop if first and self.mode is EarlyStop.ACT else None

    def look(self, view: TableView) -> None:
        """Look once, and log a finding."""
        snapshot = view.snapshot
        if snapshot is None or self.doomed or self.stop or self.mode is EarlyStop.OFF:
            return
        ours = running_write(self.log, snapshot, view.ticks)
        stop = self._reason(view, snapshot, ours) if ours else None
        if stop is None or self._ended.is_set():
            return
        if ours == running_write(self.log, snapshot, view.ticks):  # the log goes on meanwhile
            self._keep(DoomedWrite(stop, round(time.time() * 1000)))

    def end(self) -> None:
        """Find nothing more."""
        self._ended.set()

    def _keep(self, finding: DoomedWrite) -> None:
        if finding.stop.outcome is not Outcome.YIELDED:
            self.doomed = finding
            self.logger.warning("%s.", finding.stop.line)
        elif self.choice is None:
            self.choice = finding
            would = "" if self.mode is EarlyStop.ACT else "With early_stop='act': "
            self.logger.warning("%s%s.", would, finding.stop.line)

    def _reason(self, view: TableView, snapshot: Snapshot, ours: Instant) -> Stop | None:
        self.point.look(view, snapshot, ours)
        conflict = self._loss(snapshot, ours)
        if conflict:
            return _stop(ours.time, conflict)
        return self.earlier.stop(view, snapshot, ours) if self.earlier else None

    def _loss(self, snapshot: Snapshot, ours: Instant) -> Conflict | None:
        """Return the certain conflict of a write with a completed rival.

        Without another commit since the last look there is nothing to read.
        """
        rivals = possible_winners(snapshot, ours)
        judged = ours.time, frozenset(rival.time for rival in rivals)
        if judged == self._judged or not rivals or snapshot.reader.profile(ours) is None:
            return None
        setup = Setup(self.strategy, unseen=self.point.unseen(ours, rivals))
        conflict = lost_conflict(snapshot, ours, rivals, setup)
        if conflict is None:
            self._judged = judged
        return conflict


def _stop(ours: str, conflict: Conflict) -> Stop:
    rival = conflict.rival.instant
    groups = sorted(conflict.file_groups)
    named = ", ".join("/".join(group).lstrip("/") for group in groups[:_MOST_NAMED])
    more = f" and {len(groups) - _MOST_NAMED} more" if len(groups) > _MOST_NAMED else ""
    line = (
        f"{ours} can no longer commit: {rival.time} has completed since it began, and wrote "
        f"{len(groups)} of its file groups ({named}{more})"
    )
    return Stop(Outcome.COMMIT_CONFLICT, line, rival.time, ours)


def running_write(log: DriverLog, snapshot: Snapshot, ticks: Mapping[str, int]) -> Instant | None:
    """Return the pending write that a driver is making in a table.

    It is the youngest of the driver's writes that the table does not show as completed. A write that
    may be in this table and is not listed yet hides earlier ones. An earlier one counts only while it
    has a heartbeat: a job that goes on after an error has given it up.

    :param ticks: the last ticks of the table's heartbeats.
    :returns: ``None`` if there is none, or if its commit is under way or refused.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    requested = log.own_instants
    for write in reversed(requested):
        begun_in = log.instants.tables.get(write)
        if begun_in and is_other_table(snapshot.path, begun_in):
            continue
        instant = snapshot.timeline.find(write)
        if instant and _is_no_running_write(instant, snapshot):
            continue
        is_known = instant and (write == requested[-1] or write in ticks)
        is_decided = write in log.instants.committing or write in log.instants.conflicts
        return instant if is_known and not is_decided else None
    return None


def _is_no_running_write(instant: Instant, snapshot: Snapshot) -> bool:
    is_pending_write = instant.is_write and not instant.completed
    return not is_pending_write or snapshot.reader.planned(instant) is not None
