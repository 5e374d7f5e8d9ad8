"""Reports what concurrent writing has cost a table, by its metadata alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.format.archive import in_zone_of_requests
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata, RolledBack
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import (
    WRITE_ACTIONS,
    Instant,
    elapsed_ms,
    from_naive_ms,
    naive_ms,
)
from airflow_occ_provider.hudi.report.losses import EndedWrite, Loss, Spans, losses
from airflow_occ_provider.hudi.report.summary import Sum, Summary, summarize
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.spelling import SEPARATOR
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import PendingInstant, pending_writers

_MOST_LISTED = 20
_EAGER = "eager_cleaner"
_Groups = Mapping[Instant, frozenset[FileGroupId]]


@dataclass(frozen=True, slots=True)
class TableReport:
    """What concurrent writing has cost a table.

    :param since_ms: epoch milliseconds from which writes count.
    :param at_ms: epoch milliseconds of the report.
    :param ahead_ms: how far the table's instant times are ahead of UTC.
    :param commits: the completed writes and table services, and how long they took.
    :param losses: the writes that ended without a commit, oldest first.
    :param names: of the writes that they lost to, by requested time.
    :param findings: of ``reading.doctor``, the worst first.
    :param unread: archived rollbacks that cannot be decoded, so that their writes are missing here.
    """

    table: str
    since_ms: int
    at_ms: int
    ahead_ms: int
    commits: Sum
    losses: tuple[Loss, ...]
    names: Mapping[str, str]
    findings: tuple[Finding, ...]
    unread: int = 0

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
    rule: HeartbeatRule = DEFAULT_RULE,
    tell: Callable[[str], None] = lambda _: None,
) -> TableReport:
    """Return what concurrent writing has cost a table.

    Reads the timeline, the rollbacks in it and in the history, and the commits beside the writes that
    were rolled back: each file once. Nothing is written.

    :param since_ms: epoch milliseconds; what was requested before is left out.
    :param rule: the heartbeat rule of the writers.
    :param tell: called with what is read next, for people that wait.
    :raises HistoryUnreadableError: for a history of layout 2 without pyarrow.
    :raises TableUnreadableError: if the storage cannot be read, or there is no table.
    """
    table = table.diagnosed()
    snapshot = table.snapshot()
    ahead_ms = snapshot.ahead_ms()
    since = from_naive_ms(since_ms + ahead_ms)
    tell(f"reading the history of {table.path}")
    archived = snapshot.history(since_ms) if snapshot.has_history() else ()
    if snapshot.config.layout_version == 1 and snapshot.config.is_timeline_in_utc:
        archived = in_zone_of_requests(archived)
    instants = [instant for instant in (*archived, *snapshot.timeline) if instant.time >= since]
    done = [instant for instant in instants if instant.completed and instant.is_write]
    rollbacks = [instant for instant in instants if instant.action == "rollback"]
    tell(f"reading {len(rollbacks)} rollbacks of {table.path}")
    content = _read_each(snapshot.reader.rolled_back, rollbacks)
    completed = {instant.time for instant in done}
    # A write whose rollback is pending is pending itself.
    dead = {write.time: write for write in _dead(table, snapshot, rule, ahead_ms)}
    ended = [
        write
        for time, write in sorted((dead | _taken_back(content)).items())
        if time >= since and time not in completed
    ]
    spans = Spans(done)
    beside = {other for write in ended for other in spans.beside(write)}
    tell(f"reading {len(beside)} commits beside {len(ended)} lost writes of {table.path}")
    written = _read_each(snapshot.reader.commit, beside)
    tell(f"examining {table.path}")
    findings = examine(table, rule)
    eager = (finding for finding in findings if finding.check == _EAGER)
    certain = (finding.instants for finding in eager if finding.severity is Severity.ERROR)
    found = losses(
        ended,
        spans,
        _file_groups(written),
        {time for times in certain for time in times},
    )
    return TableReport(
        table.path,
        since_ms,
        _now_ms(),
        ahead_ms,
        _length(done),
        tuple(found),
        {instant.time: _name(instant, metadata) for instant, metadata in written.items()},
        findings,
        sum(content[rollback] is None for rollback in rollbacks),
    )


def _read_each(read: Callable[[Instant], Any], instants: Iterable[Instant]) -> dict[Instant, Any]:
    """Return what is read of instants; archived ones in the order of their files."""
    active = dict.fromkeys(instants)
    archived = sorted(
        (instant for instant in active if instant.archived), key=lambda instant: instant.file_name
    )
    for instant in archived:
        active[instant] = read(instant)
    return active | map_concurrently(read, [i for i in active if not i.archived])


def _taken_back(content: Mapping[Instant, RolledBack | None]) -> dict[str, EndedWrite]:
    """Return the writes that rollbacks name; the first one that names a write counts."""
    ended: dict[str, EndedWrite] = {}
    for rollback, taken in sorted(content.items()):
        if taken is None:
            continue
        for begun, action in taken.actions.items():
            write = EndedWrite(begun, action, rollback.time, rollback.time, taken.file_groups)
            if action in WRITE_ACTIONS:
                ended.setdefault(begun, write)
    return ended


def _dead(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule, ahead_ms: int
) -> Iterable[EndedWrite]:
    for writer in pending_writers(table, snapshot, rule):
        if not writer.live:
            operation, last_ms = writer.operation, _last_sign_ms(snapshot, writer)
            instant = operation.instant
            ended = from_naive_ms(last_ms + ahead_ms) if last_ms else instant.time
            yield EndedWrite(instant.time, instant.action, ended, "", operation.file_groups)


def _last_sign_ms(snapshot: Snapshot, writer: PendingInstant) -> int:
    """Return the epoch milliseconds of the last file of a pending write's driver."""
    operation = writer.operation
    partitions = sorted({partition for partition, _ in operation.file_groups})[:_MOST_LISTED]
    files = (snapshot.last_file_ms(partition, operation.instant.time) for partition in partitions)
    signs = (operation.requested_ms, operation.inflight_ms, writer.heartbeat.last_ms, *files)
    return max(filter(None, signs), default=0)


def _file_groups(written: Mapping[Instant, CommitMetadata | None]) -> _Groups:
    return {
        instant: metadata.file_groups | metadata.replaced
        for instant, metadata in written.items()
        if metadata and not metadata.is_table_service
    }


def _name(instant: Instant, metadata: CommitMetadata | None) -> str:
    if metadata is None:
        return instant.action
    signature = Signature.from_extra(metadata.extra)
    if signature is None:
        return f"{metadata.operation_type}, not signed"
    return SEPARATOR.join(signature.task_run.task_path)


def _length(done: Iterable[Instant]) -> Sum:
    lengths = [elapsed_ms(write.time, write.completion_time or write.time) or 0 for write in done]
    return Sum(len(lengths), sum(max(0, length) for length in lengths))


def _now_ms() -> int:
    return round(time.time() * 1000)
