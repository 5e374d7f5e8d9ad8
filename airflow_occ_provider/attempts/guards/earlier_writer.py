"""Finds the earlier writer behind which a running write is queued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from airflow_occ_provider.attempts.guards.table_views import TableView
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.conflict.verdict import Conflict
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.storage.conflicts import Setup, earlier_overlap, planned_before
from airflow_occ_provider.storage.snapshot import Snapshot

_MOST_QUESTIONS = 3


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
        return _stop(ours.time, conflict, owners)

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


def _stop(ours: str, conflict: Conflict, owners: Mapping[str, Owner]) -> Stop:
    rival = conflict.rival.instant.time
    count = len(conflict.file_groups)
    shared = f"{count} of its file groups" if count > 1 else "one of its file groups"
    line = f"{ours} gives way to the earlier {rival} of {owners[rival]}, which writes {shared}"
    return Stop(Outcome.YIELDED, line, rival, ours)
