"""The pending writes and table services of a table, with their heartbeats."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.pending import PendingAction
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, WRITE_ACTIONS, Instant
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat, HeartbeatRule
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_OF_DATA = WRITE_ACTIONS | TABLE_SERVICE_ACTIONS


@dataclass(frozen=True, slots=True)
class PendingInstant:
    """A pending write or table service: what it touches, and its writer's liveness."""

    operation: ConcurrentOperation
    heartbeat: Heartbeat

    @property
    def live(self) -> bool:
        """Whether Hudi still counts its writer as alive."""
        return self.heartbeat.live


@dataclass(frozen=True, slots=True)
class JudgedWrites:
    """The pending writes of a table, without those of table services.

    :param snapshot: the table after the heartbeats were listed.
    :param heartbeats: the heartbeat of each that was listed before and after them.
    :param begun: those that began in between.
    :param awaited: requested times of the live heartbeats that have no instant yet.
    """

    snapshot: Snapshot
    heartbeats: Mapping[Instant, Heartbeat]
    begun: tuple[Instant, ...]
    awaited: frozenset[str]


def judge_writes(
    table: HudiTable,
    snapshot: Snapshot,
    rule: HeartbeatRule = DEFAULT_RULE,
    *,
    always_again: bool = False,
) -> JudgedWrites:
    """Return the pending writes of a table, with the liveness of their writers.

    The timeline is listed again after the heartbeats, as Hudi does before it rolls back: a writer that
    completed meanwhile has removed its heartbeat, and is not dead. A heartbeat starts before its instant
    is requested (Hudi 1.2.0, ``BaseHoodieWriteClient``).

    :param always_again: whether to list the timeline again also if nothing was pending.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    now_ms = round(time.time() * 1000)  # a slow listing must not make a heartbeat look old
    heartbeats = snapshot.heartbeats()
    is_due = always_again or snapshot.timeline.pending_writes()
    later = table.snapshot(snapshot) if is_due else snapshot
    pending = later.timeline.pending_writes()
    plans = map_concurrently(later.reader.planned, pending)
    writes = [write for write in pending if plans[write] is None]
    before = [write for write in writes if snapshot.timeline.find(write.time)]
    judged = {name: rule.judge(ms, now_ms) for name, ms in heartbeats.items()}
    return JudgedWrites(
        later,
        {write: judged.get(write.time) or rule.judge(None, now_ms) for write in before},
        tuple(write for write in writes if write not in before),
        frozenset(
            name for name, beat in judged.items() if beat.live and later.timeline.find(name) is None
        ),
    )


def pending_writers(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE
) -> tuple[PendingInstant, ...]:
    """Return the pending writes, oldest first, with the liveness of their writers.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    judged = judge_writes(table, snapshot, rule)
    return _pending(judged.snapshot, judged.heartbeats)


def living_writers(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE
) -> tuple[PendingInstant, ...]:
    """Return the pending writes whose heartbeats have not expired, oldest first.

    What the others touch is not read, however many they are.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    judged = judge_writes(table, snapshot, rule)
    return _pending(
        judged.snapshot, {write: beat for write, beat in judged.heartbeats.items() if beat.live}
    )


def pending_table_services(
    snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE
) -> tuple[PendingInstant, ...]:
    """Return the pending compactions, log compactions and clusterings, oldest first.

    Only compactions of Hudi 1.2 and later have heartbeats.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    now_ms = round(time.time() * 1000)
    heartbeats = snapshot.heartbeats()
    pending = [instant for instant in snapshot.timeline if not instant.completed]
    plans = map_concurrently(
        snapshot.reader.planned, (instant for instant in pending if instant.is_write)
    )
    services = (
        instant
        for instant in pending
        if instant.action in TABLE_SERVICE_ACTIONS or plans.get(instant) is not None
    )
    judged = {instant: rule.judge(heartbeats.get(instant.time), now_ms) for instant in services}
    return _pending(snapshot, judged)


def pending_actions(snapshot: Snapshot, rule: HeartbeatRule = DEFAULT_RULE) -> tuple[PendingAction, ...]:
    """Return the pending actions that write no data, oldest first.

    Such as restores, rollbacks and cleans.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    begun = (instant for instant in snapshot.timeline if not instant.completed)
    pending = [instant for instant in begun if instant.action not in _OF_DATA]
    if not pending:
        return ()
    now_ms = round(time.time() * 1000)
    heartbeats = snapshot.heartbeats()
    times = snapshot.times_of(pending)
    actions = list[PendingAction]()
    for instant in pending:
        is_rollback = instant.action in ("rollback", "restore")
        victims = snapshot.reader.rolled_back_times(instant) if is_rollback else frozenset[str]()
        actions.append(
            PendingAction(
                instant,
                max(filter(None, times[instant]), default=None),
                rule.judge(heartbeats.get(instant.time), now_ms).live,
                victims,
                bool(victims) and not any(snapshot.timeline.find(time) for time in victims),
            )
        )
    return tuple(actions)


def _pending(snapshot: Snapshot, judged: Mapping[Instant, Heartbeat]) -> tuple[PendingInstant, ...]:
    operations = map_concurrently(lambda instant: snapshot.operation(instant, judged[instant]), judged)
    return tuple(PendingInstant(operations[instant], heartbeat) for instant, heartbeat in judged.items())
