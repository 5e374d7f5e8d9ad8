"""Watches the writers of one table, at the cost of one listing per observation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from airflow_occ_provider.hudi.writer.fate import Fate, Writer
from airflow_occ_provider.hudi.writer.heartbeat import (
    DEFAULT_RULE,
    ClockDifference,
    Heartbeat,
    HeartbeatRule,
    Liveness,
)
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


def _clock_ms() -> int:
    return round(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Observation:
    """The writers of a table at one moment.

    :param pending: the pending writes, by requested time, oldest first.
    :param clock: how far the storage's clock is ahead; ``None`` until a tick has shown it.
    """

    pending: Mapping[str, Writer]
    snapshot: Snapshot
    clock: ClockDifference | None

    def writer(self, instant: str) -> Writer:
        """Return one write with its fate.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        writer = self.pending.get(instant)
        if writer:
            return writer
        snapshot = self.snapshot if self.snapshot.timeline.find(instant) else self.snapshot.whole()
        listed = snapshot.timeline.find(instant)
        if listed:
            return Writer(instant, listed.action, Fate.COMMITTED if listed.completed else Fate.ALIVE)
        fate = Fate.ROLLED_BACK if snapshot.rollback_of(instant) else Fate.GONE
        return Writer(instant, "", fate)

    @property
    def fates(self) -> dict[str, Fate]:
        """The fate of each pending write; it changes only if a writer does."""
        return {instant: writer.fate for instant, writer in self.pending.items()}


@dataclass(eq=False, slots=True)
class WriterWatch:
    """A watch over the heartbeats of one table, and its timeline if needed.

    A heartbeat starts before its instant is requested and is removed after the instant is completed or
    rolled back (Hudi 1.2.0, ``BaseHoodieWriteClient``, ``HoodieHeartbeatClient``). So while the
    same heartbeats exist, the timeline has the same pending writes. It is listed if the heartbeats
    change, while a dead writer is pending, and once per tolerance for writers without a heartbeat.

    As in Hudi's lazy clean, a writer counts as dead only if the timeline, listed after the heartbeats,
    still has its instant pending.
    """

    table: HudiTable
    rule: HeartbeatRule = DEFAULT_RULE
    clock_ms: Callable[[], int] = _clock_ms
    _ticks: Mapping[str, int] = field(init=False, default_factory=dict)
    _heartbeats_ms: int = field(init=False, default=0)
    _snapshot: Snapshot | None = field(init=False, default=None)
    _listed_ms: int = field(init=False, default=0)
    _unsettled: bool = field(init=False, default=True)
    _clock: ClockDifference | None = field(init=False, default=None)

    def observe(self) -> Observation:
        """Observe the table once.

        :raises NotHudiTableError: if there is no table at the path.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        before = self._snapshot or self._list()
        only_timeline = self._only_timeline_is_due()
        unsettled = self._unsettled
        self._unsettled = True  # also after an observation that fails half-way
        if only_timeline:
            listed = self._list().timeline.pending_writes()
            only_timeline = all(before.timeline.find(write.time) for write in listed)
        if not only_timeline:
            changed = self._read_heartbeats()
            due = unsettled or self._is_due(self.clock_ms())
            if changed or due or self._has_expired(before):
                self._list()
        # The time of the request: a slow answer must not make a heartbeat look old.
        now_ms = self._heartbeats_ms
        snapshot = self._snapshot or before
        pending_writes = snapshot.timeline.pending_writes()
        writes = [write for write in pending_writes if snapshot.reader.planned(write) is None]
        # Without a heartbeat and not listed before the heartbeats were read, it has just begun.
        writers = [
            write for write in writes if write.time in self._ticks or before.timeline.find(write.time)
        ]
        pending = {
            write.time: Writer.pending(write, self._judge(write.time, now_ms)) for write in writers
        }
        dead = any(writer.fate is Fate.DEAD for writer in pending.values())
        self._unsettled = dead or len(writers) < len(writes) or self._awaits_request(snapshot, now_ms)
        return Observation(pending, snapshot, self._clock)

    def _has_expired(self, snapshot: Snapshot) -> bool:
        """Whether a pending write's heartbeat expired: it may be completed now."""
        return any(
            not self._judge(write.time, self._heartbeats_ms).live
            and snapshot.reader.planned(write) is None
            for write in snapshot.timeline.pending_writes()
        )

    def _judge(self, instant: str, now_ms: int) -> Heartbeat:
        return self.rule.judge(self._ticks.get(instant), now_ms)

    def _awaits_request(self, snapshot: Snapshot, now_ms: int) -> bool:
        """Whether a live heartbeat has no instant in the timeline yet."""
        return any(
            snapshot.timeline.find(name) is None and self._judge(name, now_ms).live
            for name in self._ticks
        )

    def _list(self) -> Snapshot:
        self._listed_ms = self.clock_ms()
        snapshot = self.table.snapshot(self._snapshot, max_age_s=self.rule.tolerance_ms / 1000)
        if self._awaits_request(snapshot, self._heartbeats_ms):  # it may be older than what was listed
            snapshot = snapshot.whole()
        self._snapshot = snapshot
        return snapshot

    def _read_heartbeats(self) -> bool:
        """Read the heartbeats; return whether the set of writers changed."""
        begun_ms = self.clock_ms()
        before = self._ticks
        ticks = self.table.files.heartbeats()
        if self._heartbeats_ms:
            self._compare_clocks(ticks, self._heartbeats_ms, self.clock_ms())
        self._ticks, self._heartbeats_ms = ticks, begun_ms
        return ticks.keys() != before.keys()

    def _compare_clocks(self, ticks: Mapping[str, int], after_ms: int, before_ms: int) -> None:
        for instant, written_ms in ticks.items():
            if self._ticks.get(instant) != written_ms:
                measured = ClockDifference.measured(written_ms, after_ms, before_ms)
                self._clock = self._clock.narrowed(measured) if self._clock else measured

    def _is_due(self, now_ms: int) -> bool:
        return now_ms - self._listed_ms >= self.rule.tolerance_ms

    def _only_timeline_is_due(self) -> bool:
        """Whether the timeline alone must be listed: no heartbeat can be overdue yet."""
        now_ms = self.clock_ms()
        return (
            self._heartbeats_ms > 0
            and not self._unsettled
            and self._is_due(now_ms)
            and all(self._judge(name, now_ms).liveness is Liveness.ALIVE for name in self._ticks)
        )
