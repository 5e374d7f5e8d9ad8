"""Reports what concurrent writing has cost a table, by its metadata alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.errors import HistoryUnreadableError
from airflow_occ_provider.hudi.doctor.finding import Finding
from airflow_occ_provider.hudi.format.commit_metadata import RolledBack
from airflow_occ_provider.hudi.format.instant import (
    WRITE_ACTIONS,
    Instant,
    elapsed_ms,
    from_naive_ms,
    naive_ms,
)
from airflow_occ_provider.hudi.report.losses import Completed, EndedWrite, Loss, Spans, losses
from airflow_occ_provider.hudi.report.summary import Sum, Summary, summarize
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.hudi.writer.options import NON_BLOCKING
from airflow_occ_provider.reading.doctor import STUCK_AFTER_MS
from airflow_occ_provider.spelling import SEPARATOR
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import PendingInstant, pending_writers

_MOST_LISTED = 20
_EARLY = "eager_cleaner"
_SERVICE_OF_LOGS = "LOG_COMPACT"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableReport:
    """What concurrent writing has cost a table.

    :param since_ms: epoch milliseconds from which writes count.
    :param at_ms: epoch milliseconds of the report.
    :param ahead_ms: how far the table's instant times are ahead of UTC.
    :param commits: the completed writes and table services, and how long they took.
    :param losses: the writes that ended without a commit, oldest first.
    :param names: of the writes that they lost to, by requested time.
    :param findings: of the table's examination, the worst first.
    :param gaps: what could not be read, as sentences.
    """

    table: str
    since_ms: int
    at_ms: int
    ahead_ms: int
    commits: Sum
    losses: tuple[Loss, ...]
    names: Mapping[str, str]
    findings: tuple[Finding, ...]
    gaps: tuple[str, ...] = ()

    @property
    def summary(self) -> Summary:
        """The losses, added up."""
        return summarize(self.losses, self.names)

    def epoch_ms(self, instant_time: str) -> int | None:
        """Return the epoch milliseconds of an instant time of the table."""
        named_ms = naive_ms(instant_time)
        return None if named_ms is None else named_ms - self.ahead_ms


def report(
    table: HudiTable,
    since_ms: int,
    findings: tuple[Finding, ...] = (),
    rule: HeartbeatRule = DEFAULT_RULE,
    progress: Callable[[str], None] = lambda _: None,
) -> TableReport:
    """Return what concurrent writing has cost a table.

    Reads the timeline, the rollbacks in it and in the history, and the commits beside the writes that
    were lost. Nothing is written.

    :param since_ms: epoch milliseconds; what was requested before is left out.
    :param findings: of ``reading.doctor.examine``: they name the writes that were rolled back early.
    :param rule: the heartbeat rule of the writers.
    :param progress: called with what is read next.
    :raises TableUnreadableError: if the storage cannot be read, or there is no table.
    """
    table = table.diagnosed()
    snapshot = table.snapshot()
    ahead_ms = 0 if snapshot.config.is_timeline_in_utc else snapshot.ahead_ms()
    since = from_naive_ms(max(0, since_ms + ahead_ms))
    progress(f"reading the history of {table.path}")
    archived, gaps = _archived(snapshot, max(0, since_ms))
    instants = [*archived, *snapshot.timeline]
    done = [instant for instant in instants if instant.completed and instant.is_write]
    rollbacks = [i for i in instants if i.action == "rollback" and i.time >= since]
    progress(f"reading {len(rollbacks)} rollbacks of {table.path}")
    contents = _read_each(snapshot.reader.rolled_back, rollbacks)
    unread = sum(content is None for content in contents.values())
    if unread:
        gaps.append(f"{unread} rollbacks cannot be read; their writes are missing.")
    completed = {instant.time for instant in done}
    # A write whose rollback is pending is pending itself.
    dead = {write.time: write for write in _dead(table, snapshot, rule, ahead_ms)}
    ended = [
        write
        for write_time, write in sorted((dead | _rolled_back(contents)).items())
        if write_time >= since and write_time not in completed
    ]
    spans = Spans(write for write in done if (write.completion_time or "") >= since)
    beside = {other for write in ended for other in spans.beside(write)}
    if (snapshot.config.concurrency_mode or "").upper() == NON_BLOCKING:
        beside = set()  # overlapping writes all commit
    progress(f"reading {len(beside)} commits beside {len(ended)} lost writes of {table.path}")
    written = _read_each(partial(_completed, snapshot), beside)
    early = {at for finding in findings if finding.check == _EARLY for at in finding.instants}
    return TableReport(
        table.path,
        max(0, since_ms),
        _now_ms(),
        ahead_ms,
        _length(write for write in done if write.time >= since),
        tuple(losses(ended, spans, written, early)),
        {instant.time: write.name for instant, write in written.items()},
        findings,
        tuple(gaps),
    )


def _archived(snapshot: Snapshot, since_ms: int) -> tuple[tuple[Instant, ...], list[str]]:
    """Return the archived instants, and what is missing of them."""
    if not snapshot.has_history(since_ms):
        return (), []
    try:
        return snapshot.history(since_ms), []
    except HistoryUnreadableError as error:
        return (), [f"What was archived is missing: {error.message}. {error.remedy}."]


def _read_each(read: Callable[[Instant], _T], instants: Iterable[Instant]) -> dict[Instant, _T]:
    """Return what is read of instants; archived ones in the order of their files."""
    wanted = set(instants)
    archived = sorted((i for i in wanted if i.archived), key=lambda instant: instant.file_name)
    return {instant: read(instant) for instant in archived} | map_concurrently(
        read, wanted.difference(archived)
    )


def _rolled_back(contents: Mapping[Instant, RolledBack | None]) -> dict[str, EndedWrite]:
    """Return the writes that rollbacks name; the first one that names a write counts."""
    ended: dict[str, EndedWrite] = {}
    for rollback, content in sorted(contents.items()):
        for begun, action in content.actions.items() if content else ():
            groups = content.file_groups if content else frozenset()
            if action in WRITE_ACTIONS:
                ended.setdefault(begun, EndedWrite(begun, action, rollback.time, rollback.time, groups))
    return ended


def _dead(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule, ahead_ms: int
) -> Iterable[EndedWrite]:
    """Yield the pending writes that have ended.

    One without a heartbeat may be that of a single writer, which has none, as long as it is young.
    """
    may_be_alive = from_naive_ms(_now_ms() - STUCK_AFTER_MS + ahead_ms)
    for writer in pending_writers(table, snapshot, rule):
        operation, has_heartbeat = writer.operation, writer.heartbeat.last_ms is not None
        instant = operation.instant
        if writer.live or not (has_heartbeat or instant.time < may_be_alive):
            continue
        last_ms = _last_sign_ms(snapshot, writer)
        yield EndedWrite(
            instant.time,
            instant.action,
            from_naive_ms(last_ms + ahead_ms) if last_ms else instant.time,
            file_groups=operation.file_groups,
            at_commit=not has_heartbeat and snapshot.config.layout_version > 1,
        )


def _last_sign_ms(snapshot: Snapshot, writer: PendingInstant) -> int:
    """Return the epoch milliseconds of the last file of a pending write's driver."""
    operation = writer.operation
    partitions = sorted({partition for partition, _ in operation.file_groups})[:_MOST_LISTED]
    files = (snapshot.last_file_ms(partition, operation.instant.time) for partition in partitions)
    signs = (operation.requested_ms, operation.inflight_ms, writer.heartbeat.last_ms, *files)
    return max(filter(None, signs), default=0)


def _completed(snapshot: Snapshot, instant: Instant) -> Completed:
    metadata = snapshot.reader.commit(instant)
    if metadata is None:
        return Completed(name=instant.action)
    is_compaction = metadata.operation_type == "COMPACT"
    # Since table version 9 a compaction refuses no write; a log compaction never does.
    is_beside = metadata.operation_type == _SERVICE_OF_LOGS or (
        is_compaction and snapshot.config.version >= 9
    )
    signature = Signature.from_extra(metadata.extra)
    return Completed(
        frozenset() if is_beside else metadata.file_groups | metadata.replaced,
        is_compaction,
        signature is not None and signature.try_number > 1,
        SEPARATOR.join(signature.task_run.task_path)
        if signature
        else f"{metadata.operation_type}, not signed",
    )


def _length(done: Iterable[Instant]) -> Sum:
    lengths = [elapsed_ms(write.time, write.completion_time or write.time) or 0 for write in done]
    return Sum(len(lengths), sum(max(0, length) for length in lengths))


def _now_ms() -> int:
    return round(time.time() * 1000)
