"""The writers of one table, looked at again and again for the price of one listing a look."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_occ_provider.hudi.writer.clock_difference import ClockDifference
from airflow_occ_provider.hudi.writer.fate import Fate, Writer
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat, HeartbeatRule, Liveness
from airflow_occ_provider.storage.snapshot import Snapshot, heartbeats
from airflow_occ_provider.storage.table import HudiTable


def _clock_ms() -> int:
    return round(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Sight:
    """The writers of a table at one moment.

    :param pending: the pending writes, by requested time, oldest first.
    :param snapshot: the table's timeline as it was last listed.
    :param clock: by how much the storage's clock is ahead; ``None`` until a tick has shown it.
    """

    pending: Mapping[str, Writer]
    snapshot: Snapshot
    clock: ClockDifference | None

    def writer(self, instant: str) -> Writer:
        """Return what became of one write.

        :param instant: its requested time.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        found = self.pending.get(instant)
        if found:
            return found
        known = self.snapshot.timeline.find(instant)
        if known:
            return Writer(instant, known.action, Fate.COMMITTED if known.completed else Fate.ALIVE)
        fate = Fate.ROLLED_BACK if self.snapshot.rollback_of(instant) else Fate.GONE
        return Writer(instant, "", fate)

    @property
    def fates(self) -> dict[str, Fate]:
        """The fate of each pending write: while it is equal, nothing has changed."""
        return {instant: writer.fate for instant, writer in self.pending.items()}


class WriterWatch:
    """Looks at the heartbeats of one table, and at its timeline where they may have changed it.

    A writer's heartbeat is made before its instant is requested, and removed after it is completed
    or rolled back (Hudi 1.2.0, ``BaseHoodieWriteClient``, ``HoodieHeartbeatClient``): so while the
    same writers beat, the timeline holds the same pending writes. It is listed where that is not so,
    while a dead one lies about, and else once in Hudi's tolerance, for writers that do not beat.

    Like Hudi's lazy cleaner, it takes nobody for dead before the timeline, listed after the
    heartbeats, still has the instant pending.

    :param table: the table.
    :param rule: how heartbeats are judged.
    :param clock_ms: tells the epoch milliseconds of this host.
    """

    def __init__(
        self,
        table: HudiTable,
        rule: HeartbeatRule = DEFAULT_RULE,
        clock_ms: Callable[[], int] = _clock_ms,
    ) -> None:
        self._table = table
        self._rule = rule
        self._tolerance_ms = rule.interval_ms * rule.tolerable_misses
        self._clock_ms = clock_ms
        self._ticks: Mapping[str, int] = {}
        self._looked_ms = 0
        self._snapshot: Snapshot | None = None
        self._listed_ms = 0
        self._unsettled = True
        self._clock: ClockDifference | None = None

    def look(self) -> Sight:
        """Look at the table.

        :raises NotHudiTableError: if there is no table at the path.
        :raises TableUnreadableError: if the storage cannot be read.
        """
        before = self._snapshot or self._list()
        only_timeline, unsettled = self._only_timeline_is_due(), self._unsettled
        self._unsettled = True  # also after a look that fails half-way
        if not only_timeline or self._shows_others(self._list(), before):
            changed = self._read_heartbeats()
            due = unsettled or self._is_due(self._clock_ms())
            if changed or due or self._has_expired(before):
                self._list()
        # As of when the heartbeats were asked for: an answer that took long makes nobody look old.
        now_ms = self._looked_ms
        snapshot = self._snapshot or before
        writes = [
            one for one in snapshot.timeline.pending_writes() if snapshot.reader.planned(one) is None
        ]
        # One that neither beats nor was there before the heartbeats were read has just begun.
        told = [one for one in writes if one.time in self._ticks or before.timeline.find(one.time)]
        pending = {one.time: Writer.pending(one, self._judge(one.time, now_ms)) for one in told}
        dead = any(writer.fate is Fate.DEAD for writer in pending.values())
        self._unsettled = dead or len(told) < len(writes) or self._awaits_request(snapshot, now_ms)
        return Sight(pending, snapshot, self._clock)

    def _shows_others(self, snapshot: Snapshot, before: Snapshot) -> bool:
        """Whether a write is pending of whose heartbeat nothing is known yet."""
        return any(before.timeline.find(one.time) is None for one in snapshot.timeline.pending_writes())

    def _has_expired(self, snapshot: Snapshot) -> bool:
        """Whether a write was pending there whose heartbeat has expired: it may be completed since."""
        return any(
            not self._judge(one.time, self._looked_ms).live and snapshot.reader.planned(one) is None
            for one in snapshot.timeline.pending_writes()
        )

    def _judge(self, instant: str, now_ms: int) -> Heartbeat:
        return self._rule.judge(self._ticks.get(instant), now_ms)

    def _awaits_request(self, snapshot: Snapshot, now_ms: int) -> bool:
        """Whether somebody beats whose instant the timeline did not show yet."""
        return any(
            snapshot.timeline.find(name) is None and self._judge(name, now_ms).live
            for name in self._ticks
        )

    def _list(self) -> Snapshot:
        self._listed_ms = self._clock_ms()
        self._snapshot = self._table.snapshot(self._snapshot, max_age_s=self._tolerance_ms / 1000)
        return self._snapshot

    def _read_heartbeats(self) -> bool:
        """Look at the heartbeats; whether other writers beat than before."""
        begun_ms, known = self._clock_ms(), self._ticks
        ticks = heartbeats(self._table.files)
        if self._looked_ms:
            self._compare_clocks(ticks, self._looked_ms, self._clock_ms())
        self._ticks, self._looked_ms = ticks, begun_ms
        return ticks.keys() != known.keys()

    def _compare_clocks(self, ticks: Mapping[str, int], after_ms: int, before_ms: int) -> None:
        for instant, written_ms in ticks.items():
            if self._ticks.get(instant) != written_ms:
                shown = ClockDifference.shown(written_ms, after_ms, before_ms)
                self._clock = self._clock.narrowed(shown) if self._clock else shown

    def _is_due(self, now_ms: int) -> bool:
        return now_ms - self._listed_ms >= self._tolerance_ms

    def _only_timeline_is_due(self) -> bool:
        """Whether a look at the timeline alone will do: no heartbeat can be overdue yet."""
        now_ms = self._clock_ms()
        return (
            self._looked_ms > 0
            and not self._unsettled
            and self._is_due(now_ms)
            and all(self._judge(name, now_ms).liveness is Liveness.ALIVE for name in self._ticks)
        )
