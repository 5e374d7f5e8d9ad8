"""The state of a table: its writers, its queue, and its instants on a time axis."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, Times
from airflow_occ_provider.hudi.conflict.verdict import Certainty, Verdict
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import (
    TABLE_SERVICE_ACTIONS,
    WRITE_ACTIONS,
    Instant,
    naive_ms,
)
from airflow_occ_provider.hudi.writer.fate import Fate, Writer
from airflow_occ_provider.leases.rules import QueuedRequest, blockers
from airflow_occ_provider.reading.table_state import (
    Bar,
    Edge,
    LiveWriter,
    PendingService,
    QueueLine,
    TableState,
)
from airflow_occ_provider.storage.conflicts import Judged, judge_all
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_QUARTER_MS = 15 * 60_000  # zones differ by multiples of it
_UNKNOWN = "unknown"


def bars(snapshot: Snapshot, writers: Iterable[LiveWriter], since_ms: int) -> tuple[Bar, ...]:
    """Return the instants that ended after a moment or are pending, oldest first.

    The commits of these are read, and the rollbacks.

    :param writers: the pending writes; other pending instants are table services.
    :param since_ms: epoch milliseconds.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    kinds = WRITE_ACTIONS | TABLE_SERVICE_ACTIONS
    times = snapshot.times_of(instant for instant in snapshot.timeline if instant.action in kinds)
    shown = [
        instant for instant, at in times.items() if not at.completed_ms or at.completed_ms >= since_ms
    ]
    done = map_concurrently(snapshot.reader.commit, (instant for instant in shown if instant.completed))
    shift_ms = zone_shift_ms(snapshot)
    pending = {writer.instant: writer for writer in writers}
    remaining = [
        _completed(instant, metadata, times[instant], begun_ms)
        if (metadata := done.get(instant))
        else _pending(instant, pending.get(instant), begun_ms)
        for instant in shown
        if (begun_ms := times[instant].requested_ms or moment_ms(instant.time, shift_ms))
        and (done.get(instant) or not instant.completed)  # else it was archived meanwhile
    ]
    return tuple(sorted([*remaining, *_rolled_back(snapshot, since_ms, shift_ms)], key=_place))


def rollback_edges(snapshot: Snapshot) -> Iterator[Edge]:
    """Yield what each rollback of the active timeline took back."""
    for rollback, times in snapshot.rollbacks():
        yield from (Edge(rollback.time, time, "rollback") for time in sorted(times))


def zone_shift_ms(snapshot: Snapshot) -> int:
    """Return by how much the table's instants are ahead of UTC, in milliseconds.

    Hudi names an instant by the clock of its writer, by default in the writer's zone
    (``hoodie.table.timeline.timezone``); the file that shows it was written by the storage's clock.
    """
    times = snapshot.times_of(instant for instant in snapshot.timeline if instant.requested_file)
    shifts = [
        named_ms - at.requested_ms
        for instant, at in times.items()
        if at.requested_ms is not None and (named_ms := moment_ms(instant.time)) is not None
    ]
    return round(median(shifts) / _QUARTER_MS) * _QUARTER_MS if shifts else 0


def moment_ms(time: str, shift_ms: int = 0) -> int | None:
    """Return the epoch milliseconds of a requested time.

    :param shift_ms: by how much it is ahead of UTC.
    :returns: ``None`` for a time that is no date, such as that of a bootstrap.
    """
    named_ms = naive_ms(time)
    return None if named_ms is None else named_ms - shift_ms


def _rolled_back(snapshot: Snapshot, since_ms: int, shift_ms: int) -> Iterator[Bar]:
    """Yield the writes of which a rollback has left nothing but their times.

    Several rollbacks or a restore may name one write: the first one ended it.
    """
    rollbacks = dict(snapshot.rollbacks())
    ends_ms: dict[str, int] = {}
    for rollback, at in snapshot.times_of(rollbacks).items():
        if (ended_ms := at.completed_ms) is not None:
            for time in rollbacks[rollback]:
                ends_ms[time] = min(ended_ms, ends_ms.get(time, ended_ms))
    for time, ended_ms in ends_ms.items():
        begun_ms = moment_ms(time, shift_ms)
        if ended_ms >= since_ms and begun_ms is not None and snapshot.timeline.find(time) is None:
            yield Bar(time, _UNKNOWN, Fate.ROLLED_BACK, begun_ms, ended_ms)


def _completed(instant: Instant, metadata: CommitMetadata, at: Times, begun_ms: int) -> Bar:
    return Bar(
        instant.time,
        metadata.operation_type or instant.action,
        Fate.COMMITTED,
        begun_ms,
        at.completed_ms,
        writer=Signature.from_extra(metadata.extra),
        is_service=metadata.is_table_service,
    )


def _pending(instant: Instant, writer: LiveWriter | None, begun_ms: int) -> Bar:
    if writer is None:
        return Bar(instant.time, instant.action, Fate.GONE, begun_ms, is_service=True)
    kind, fate, seen_ms = writer.kind, writer.fate, writer.seen_ms
    return Bar(instant.time, kind, fate, begun_ms, seen_ms=seen_ms)


def _place(bar: Bar) -> tuple[int, str]:
    return bar.begun_ms, bar.instant


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
