"""The state of a table: its writers, its queue and its dead writers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from airflow_occ_provider.attempts.overview.bars import bars, rollback_edges
from airflow_occ_provider.attempts.overview.values import (
    Edge,
    LiveWriter,
    PendingService,
    QueueLine,
    TableState,
)
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Verdict
from airflow_occ_provider.hudi.writer.fate import Writer
from airflow_occ_provider.leases.rules import QueuedRequest, blockers
from airflow_occ_provider.storage.judged import Judged, judge_all
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


def read_state(
    table: HudiTable,
    queue: Sequence[QueuedRequest] | None,
    since_ms: int,
    *,
    previous: Snapshot | None = None,
    with_verdicts: bool = True,
) -> tuple[TableState, Snapshot]:
    """Return the state of a table, and the snapshot that saves the next read requests.

    The writers' heartbeats are judged by Hudi's defaults.

    :param queue: the requests of the lock service, of all tables; ``None`` if they were not asked for.
    :param since_ms: epoch milliseconds from which completed instants are shown.
    :param with_verdicts: without them fewer requests are enough, and partitions are not known.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    at_ms = round(time.time() * 1000)
    judged = judge_all(table, table.snapshot(previous), at_ms, with_verdicts=with_verdicts)
    snapshot = judged.snapshot
    writers = tuple(
        _writer(operation, judged) for operation in judged.pending if not operation.is_table_service
    )
    services = tuple(
        _service(operation, judged, at_ms) for operation in judged.pending if operation.is_table_service
    )
    state = TableState(
        snapshot.path,
        at_ms,
        writers,
        services,
        bars(snapshot, writers, since_ms),
        (*rollback_edges(snapshot), *_conflicts(judged.verdicts)),
        None if queue is None else tuple(queue_lines(queue, snapshot.path)),
        since_ms,
    )
    return state.signed(state.announced), snapshot


def queue_lines(queue: Iterable[QueuedRequest], table: str) -> Iterator[QueueLine]:
    """Yield the requests of one table, oldest first.

    :param queue: the requests of all tables: one may be blocked in another of its tables.
    :param table: canonical base path.
    """
    requests = sorted(queue, key=lambda queued: queued.order)
    of_table = [queued for queued in requests if queued.unknown or table in queued.request.tables]
    for place, queued in enumerate(of_table, start=1):
        yield QueueLine(place, queued, blockers(queued, requests))


def _writer(operation: ConcurrentOperation, judged: Judged) -> LiveWriter:
    instant, kind = operation.instant, operation.operation_type
    beat = judged.heartbeats[instant.time]
    return LiveWriter(
        instant,
        instant.action if kind == "UNKNOWN" else kind,
        Writer.pending(instant, beat).fate,
        beat.last_ms,
        beat.margin_ms,
        _partitions(operation),
        judged.verdicts.get(instant.time),
    )


def _service(operation: ConcurrentOperation, judged: Judged, at_ms: int) -> PendingService:
    instant, requested_ms = operation.instant, operation.requested_ms
    fate = Writer.pending(instant, judged.heartbeats[instant.time]).fate
    age_ms = None if requested_ms is None else max(at_ms - requested_ms, 0)
    return PendingService(instant, fate, _partitions(operation), age_ms)


def _partitions(operation: ConcurrentOperation) -> tuple[str, ...]:
    named = {partition for partition, _ in operation.file_groups}
    return tuple(sorted(named | operation.adds_to | operation.overwrites))


def _conflicts(judged: Mapping[str, Verdict]) -> Iterator[Edge]:
    for target, verdict in judged.items():
        for conflict in verdict.conflicts:
            certain = conflict.certainty is Certainty.CERTAIN
            yield Edge(
                conflict.rival.instant.time, target, "conflict" if certain else "possible conflict"
            )
