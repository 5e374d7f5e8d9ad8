"""The pending writes and table services of a table, with their heartbeats."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat, HeartbeatRule
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class PendingInstant:
    """A pending write or table service: what it touches, and its writer's liveness."""

    operation: ConcurrentOperation
    heartbeat: Heartbeat

    @property
    def live(self) -> bool:
        """Whether Hudi still counts its writer as alive."""
        return self.heartbeat.live


def pending_writers(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE
) -> tuple[PendingInstant, ...]:
    """Return the pending writes, oldest first, with the liveness of their writers.

    The timeline is listed again after the heartbeats, as Hudi does before it rolls back: a writer that
    completed meanwhile has removed its heartbeat, and is not dead.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    heartbeats = snapshot.heartbeats()
    now_ms = round(time.time() * 1000)
    later = table.snapshot(snapshot) if snapshot.timeline.pending_writes() else snapshot
    known = [one for one in later.timeline.pending_writes() if snapshot.timeline.find(one.time)]
    plans = map_concurrently(later.reader.planned, known)
    return _pending(later, (one for one in known if plans[one] is None), heartbeats, rule, now_ms)


def pending_table_services(
    snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE
) -> tuple[PendingInstant, ...]:
    """Return the pending compactions, log compactions and clusterings, oldest first.

    Only compactions of Hudi 1.2 and later have heartbeats.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    heartbeats = snapshot.heartbeats()
    now_ms = round(time.time() * 1000)
    pending = [one for one in snapshot.timeline if not one.completed]
    plans = map_concurrently(snapshot.reader.planned, (one for one in pending if one.is_write))
    services = (
        one for one in pending if one.action in TABLE_SERVICE_ACTIONS or plans.get(one) is not None
    )
    return _pending(snapshot, services, heartbeats, rule, now_ms)


def _pending(
    snapshot: Snapshot,
    instants: Iterable[Instant],
    heartbeats: Mapping[str, int],
    rule: HeartbeatRule,
    now_ms: int,
) -> tuple[PendingInstant, ...]:
    judged = {one: rule.judge(heartbeats.get(one.time), now_ms) for one in instants}
    operations = map_concurrently(lambda one: snapshot.operation(one, judged[one]), judged)
    return tuple(PendingInstant(operations[one], heartbeat) for one, heartbeat in judged.items())
