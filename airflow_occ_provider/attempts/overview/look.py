"""Looks at a table: who writes, who waits, and who died."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.overview.bars import bars, rollback_edges
from airflow_occ_provider.attempts.overview.values import (
    Edge,
    LiveWriter,
    PendingService,
    QueueLine,
    TableState,
)
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Verdict
from airflow_occ_provider.hudi.writer.fate import Writer
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.leases.rules import QueuedRequest, blockers
from airflow_occ_provider.storage.conflicts import verdicts
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import (
    PendingInstant,
    pending_table_services,
    pending_writers,
)


def look_at(
    table: HudiTable,
    queue: Sequence[QueuedRequest] | None,
    since_ms: int,
    *,
    rule: HeartbeatRule = DEFAULT_RULE,
    signed: Mapping[str, Signature] | None = None,
    previous: Snapshot | None = None,
) -> tuple[TableState, Snapshot]:
    """Return the state of a table, and the snapshot that saves the next look requests.

    :param queue: the requests of the lock service, of all tables; ``None`` if they were not asked for.
    :param since_ms: epoch milliseconds from which completed instants are shown.
    :param rule: by which the writers' heartbeats are judged.
    :param signed: the signatures of pending writes that are known otherwise, by requested time.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    at_ms, snapshot = round(time.time() * 1000), table.snapshot(previous)
    judged = verdicts(table, snapshot, now_ms=at_ms)
    writers = [_writer(one, judged) for one in pending_writers(table, snapshot, rule)]
    services = [_service(one, at_ms) for one in pending_table_services(snapshot, rule)]
    state = TableState(
        snapshot.path,
        at_ms,
        tuple(writers),
        tuple(services),
        bars(snapshot, signed or {}, writers, since_ms),
        (*rollback_edges(snapshot), *_conflicts(judged)),
        None if queue is None else tuple(queue_lines(queue, snapshot.path)),
    )
    return state, snapshot


def queue_lines(queue: Iterable[QueuedRequest], table: str) -> Iterator[QueueLine]:
    """Yield the requests of one table, oldest first.

    :param queue: the requests of all tables: one may be blocked in another of its tables.
    :param table: canonical base path.
    """
    everyone = sorted(queue, key=lambda one: one.order)
    own = [one for one in everyone if one.unknown or table in one.request.tables]
    for place, one in enumerate(own, start=1):
        yield QueueLine(place, one, blockers(one, everyone))


def _writer(pending: PendingInstant, judged: Mapping[str, Verdict]) -> LiveWriter:
    operation = pending.operation
    fate = Writer.pending(operation.instant, pending.heartbeat).fate
    kind = operation.operation_type
    return LiveWriter(
        operation.instant,
        operation.instant.action if kind == "UNKNOWN" else kind,
        fate,
        pending.heartbeat.last_ms,
        pending.heartbeat.margin_ms,
        _partitions(pending),
        judged.get(operation.instant.time),
    )


def _service(pending: PendingInstant, at_ms: int) -> PendingService:
    operation = pending.operation
    fate = Writer.pending(operation.instant, pending.heartbeat).fate
    requested_ms = operation.requested_ms
    age_ms = None if requested_ms is None else max(at_ms - requested_ms, 0)
    return PendingService(operation.instant, fate, _partitions(pending), age_ms)


def _partitions(pending: PendingInstant) -> tuple[str, ...]:
    operation = pending.operation
    named = {partition for partition, _ in operation.file_groups}
    return tuple(sorted(named | operation.adds_to | operation.overwrites))


def _conflicts(judged: Mapping[str, Verdict]) -> Iterator[Edge]:
    for target, verdict in judged.items():
        for one in verdict.conflicts:
            certain = one.certainty is Certainty.CERTAIN
            yield Edge(one.rival.instant.time, target, "conflict" if certain else "possible conflict")
