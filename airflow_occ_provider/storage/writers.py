"""The pending writes, services and plans of a table, with heartbeats and owners."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.doctor.writers import PendingAction
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, WRITE_ACTIONS, Instant
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat, HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Plan, Service
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_OF_DATA = WRITE_ACTIONS | TABLE_SERVICE_ACTIONS
_PLANNED = TABLE_SERVICE_ACTIONS | {"replacecommit"}


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


def pending_plans(
    snapshot: Snapshot, service: Service, rule: HeartbeatRule, our_times: frozenset[str] = frozenset()
) -> tuple[Plan, ...]:
    """Return the pending plans of a service, oldest first.

    :param our_times: requested times of the plans that this task run made.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    now_ms = round(time.time() * 1000)
    return tuple(
        _plan(snapshot, pending, now_ms, our_times)
        for pending in pending_table_services(snapshot, rule)
        if pending.operation.operation_type in service.kinds
    )


def signed_plans(
    table: HudiTable, snapshot: Snapshot, identity: str, before: Collection[str] = ()
) -> Iterator[Instant]:
    """Yield the services, pending or not, whose plan a run signed.

    :param before: requested times of writes that had completed before; their plans are not read.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    for instant in snapshot.timeline:
        file = instant.requested_file
        if file and instant.time not in before and instant.requested_action in _PLANNED:
            # Hudi writes plans uncompressed, and only the signature contains the uuid.
            content = table.files.read(f"{snapshot.config.timeline_folder}/{file}") or b""
            if identity.encode() in content:
                yield instant


def _plan(snapshot: Snapshot, pending: PendingInstant, now_ms: int, our_times: frozenset[str]) -> Plan:
    planned = pending.operation
    reached_ms = planned.inflight_ms or planned.requested_ms or now_ms
    return Plan(
        planned.instant,
        tuple(sorted({partition for partition, _ in planned.file_groups})),
        pending.heartbeat,
        max(0, now_ms - reached_ms),
        planned.instant.time in our_times,
        _overtaken_by(snapshot, planned),
    )


def _overtaken_by(snapshot: Snapshot, planned: ConcurrentOperation) -> str | None:
    if planned.operation_type != "CLUSTER":
        return None  # a compaction merges what exists when it runs
    for instant in snapshot.timeline.completed_writes():
        stamp = instant.completion_stamp
        if stamp is None or stamp > planned.instant.time:
            written = snapshot.operation(instant)
            later = stamp is not None or _ended_later(written, planned)
            if later and written.file_groups & planned.file_groups:
                return instant.time
    return None


def _ended_later(written: ConcurrentOperation, planned: ConcurrentOperation) -> bool:
    """Whether a write ended after a plan was made, by the storage's clock."""
    if written.completed_ms is not None and planned.requested_ms is not None:
        return written.completed_ms > planned.requested_ms
    return written.instant.time > planned.instant.time
