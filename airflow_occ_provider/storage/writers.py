"""Who is writing a table now, and which table services wait: from one look at the storage."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_occ_provider.hudi.heartbeat import DEFAULT_RULE, Heartbeat, HeartbeatRule
from airflow_occ_provider.hudi.instant import TABLE_SERVICE_ACTIONS, Instant
from airflow_occ_provider.hudi.operation import Operation
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class PendingInstant:
    """A write or a table service that has begun and is not completed.

    :param operation: what it touches, as far as the metadata tells.
    :param heartbeat: whether its writer lives.
    """

    operation: Operation
    heartbeat: Heartbeat

    @property
    def live(self) -> bool:
        """Whether Hudi still counts its writer as alive."""
        return self.heartbeat.live


def pending_writers(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE
) -> tuple[PendingInstant, ...]:
    """Return the pending writes, oldest first, with the liveness of their writers.

    The timeline is listed once more after the heartbeats, as Hudi itself does before it rolls back:
    a writer that completed meanwhile has removed its heartbeat, and is not dead.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    heartbeats = snapshot.heartbeats()
    now_ms = round(time.time() * 1000)
    later = table.snapshot(snapshot) if snapshot.timeline.pending_writes() else snapshot
    return tuple(
        _pending(later, one, heartbeats, rule, now_ms)
        for one in later.timeline.pending_writes()
        if snapshot.timeline.find(one.time) and later.planned(one) is None
    )


def pending_table_services(
    snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE
) -> tuple[PendingInstant, ...]:
    """Return the pending compactions, log compactions and clusterings, oldest first.

    Only compactions of Hudi 1.2 and later have heartbeats.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    heartbeats = snapshot.heartbeats()
    now_ms = round(time.time() * 1000)
    return tuple(
        _pending(snapshot, one, heartbeats, rule, now_ms)
        for one in snapshot.timeline
        if not one.completed
        and (one.action in TABLE_SERVICE_ACTIONS or (one.is_write and snapshot.planned(one) is not None))
    )


def _pending(
    snapshot: Snapshot, instant: Instant, heartbeats: Mapping[str, int], rule: HeartbeatRule, now_ms: int
) -> PendingInstant:
    heartbeat = rule.judge(heartbeats.get(instant.time), now_ms)
    return PendingInstant(snapshot.operation(instant, heartbeat), heartbeat)
