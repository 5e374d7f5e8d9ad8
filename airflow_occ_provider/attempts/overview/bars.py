"""The instants of a table on a time axis, and what they did to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.overview.values import Bar, Edge, LiveWriter
from airflow_occ_provider.hudi.conflict.operation import Times
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, WRITE_ACTIONS, Instant
from airflow_occ_provider.hudi.format.instant_time import naive_ms
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot

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
