"""The pending plans of a table's services, with their owners."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Plan, Service
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import PendingInstant, pending_table_services

_PLANNED = TABLE_SERVICE_ACTIONS | {"replacecommit"}


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
