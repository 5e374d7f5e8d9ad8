"""Examines a table: reads what the checks of ``hudi.doctor`` need, and runs them.

Of locks it reads what their service, and files beside the table, show.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing

from airflow_occ_provider.attempts.commit import Loss, audit_table
from airflow_occ_provider.attempts.locks import LockConnection
from airflow_occ_provider.errors import (
    HistoryUnreadableError,
    TableUnreadableError,
    UnknownTableVersionError,
)
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation, Times, completed_operation
from airflow_occ_provider.hudi.conflict.strategy import is_non_blocking
from airflow_occ_provider.hudi.doctor import commits, locks, unseen, writers
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity, some
from airflow_occ_provider.hudi.doctor.locks import LockUse, OtherLock
from airflow_occ_provider.hudi.doctor.writers import stuck_actions
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import MARKERS_TYPE_FILE
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.fate import Kind, Residue
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat, HeartbeatRule
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER
from airflow_occ_provider.hudi.writer.storage_lock import STORAGE_LOCK_PROVIDER
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.lock_file import lock_file, lock_files_beside
from airflow_occ_provider.storage.residue import UnnamedFiles, residues, unnamed_files
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_actions, pending_table_services, pending_writers

STUCK_AFTER_MS = 6 * 3_600_000
MOST_COMMITS = 30  # hoodie.keep.max.commits of Hudi 1.2.0
_ORDER = list(Severity)
_REMOVING = frozenset({"clean", "rollback", "restore"})


def examine(
    table: HudiTable, rule: HeartbeatRule = DEFAULT_RULE, lock: LockConnection | None = None
) -> tuple[Finding, ...]:
    """Return what the table's metadata shows of unsafe writers, the worst first.

    A damaged file of the timeline is a finding, and the rest is examined as if it were missing. Reads
    the active timeline with the commit of each of its writes, and lists their partitions.
    Nothing is written, neither to the table nor to the lock service.

    :param rule: the heartbeat rule of the writers.
    :param lock: the lock connection of the writers: whether they use its lock is examined too.
    :raises TableUnreadableError: if the storage cannot be read, or there is no table.
    :raises LockUnreachableError: if the lock service does not answer in time.
    :raises ConfigurationError: if it denies access.
    """
    table = table.diagnosed()
    snapshot = table.snapshot()
    done = snapshot.timeline.completed_writes()
    read = map_concurrently(snapshot.reader.commit, done)
    written = {instant: metadata for instant, metadata in read.items() if metadata}
    times = snapshot.times_of(written)
    operations = [
        completed_operation(instant, metadata, None, times[instant])
        for instant, metadata in written.items()
    ]
    faults = _faults(snapshot, rule)
    findings = [
        *commits.damaged_files(faults),
        *_of_commits(snapshot, written, operations),
        *_of_metadata_table(table, snapshot, done),
        *(_of_lock(table, lock, written, operations) if lock else ()),
        *_of_lock_files(table, lock),
        *_of_pending(table, snapshot, written, rule),
        *_of_data_files(table, snapshot, written, faults),
        *map(_left, residues(table, rule)),
    ]
    findings.sort(key=lambda finding: (_ORDER.index(finding.severity), finding.check, finding.instants))
    return tuple(findings)


def _faults(snapshot: Snapshot, rule: HeartbeatRule) -> dict[Instant, str]:
    """Return the instants with a damaged file, without pending ones whose file may still be written."""
    now_ms = _now_ms()
    faults = map_concurrently(snapshot.reader.examine, snapshot.timeline)
    times = snapshot.times_of(instant for instant, fault in faults.items() if fault)
    return {
        instant: faults[instant]
        for instant, instant_times in times.items()
        if instant.completed or now_ms - max(filter(None, instant_times), default=0) > rule.tolerance_ms
    }


def _of_data_files(
    table: HudiTable,
    snapshot: Snapshot,
    written: Mapping[Instant, CommitMetadata],
    faults: Collection[Instant],
) -> Iterator[Finding]:
    # A damaged file of a removal does not show what was removed.
    if not any(instant.action in _REMOVING for instant in faults):
        yield from map(_lost, audit_table(table, snapshot))
    try:
        for files in unnamed_files(snapshot, written):
            yield _unnamed(files)
    except HistoryUnreadableError as error:
        yield Finding("history_unread", Severity.NOTICE, (), error.message, error.remedy)


def _of_lock_files(table: HudiTable, lock: LockConnection | None) -> Iterator[Finding]:
    our_file = lock_file(table, lock.options(table.path)) if lock else None
    files = {file.path: file for file in (*lock_files_beside(table), our_file) if file and file.held}
    held_files = [locks.HeldFile(path, file.since_ms) for path, file in files.items() if file.since_ms]
    yield from locks.held_lock_files(held_files, _now_ms())


def _now_ms() -> int:
    return round(time.time() * 1000)


def _of_commits(
    snapshot: Snapshot,
    written: Mapping[Instant, CommitMetadata],
    operations: Sequence[ConcurrentOperation],
) -> Iterator[Finding]:
    mode = snapshot.config.concurrency_mode
    if not any(is_non_blocking(operation, mode) for operation in operations):
        yield from commits.unchecked_commits(operations)
        yield from commits.possible_duplicates(operations, has_keys=snapshot.config.has_record_keys)
    if not snapshot.config.merge_on_read:
        yield from unseen.overwritten_commits(operations, written)
    yield from commits.completion_times(snapshot.timeline)
    yield from commits.colliding_instants(snapshot.timeline)
    yield from commits.time_zones(operations)
    yield from commits.fast_clocks(operations)
    yield from writers.unsigned_writes(written)
    yield from writers.mixed_releases(snapshot.config.version, written)


def _of_metadata_table(
    table: HudiTable, snapshot: Snapshot, done: Sequence[Instant]
) -> Iterator[Finding]:
    if not snapshot.config.metadata_partitions:
        return
    try:
        metadata = table.metadata_table().snapshot(missing_ok=True)
    except (TableUnreadableError, UnknownTableVersionError):
        yield from unseen.metadata_table_format(snapshot.config, None)
        return
    yield from unseen.unlisted_commits(done, metadata.timeline)
    yield from unseen.metadata_table_format(snapshot.config, metadata.config)


def _of_lock(
    table: HudiTable,
    lock: LockConnection,
    written: Mapping[Instant, CommitMetadata],
    operations: Sequence[ConcurrentOperation],
) -> Iterator[Finding]:
    options = lock.options(table.path)
    signed = {instant.time for instant, commit in written.items() if writers.is_signed(commit)}
    use = lock_use(lock, table, options)
    if use:
        yield from locks.unshared_lock(use, operations, signed)
    yield from locks.fragile_lock(options)
    yield from locks.other_lock_files(other_locks(table, options), operations)
    yield from locks.other_lock_options(table.config().properties, options)


def _of_pending(
    table: HudiTable, snapshot: Snapshot, written: Mapping[Instant, CommitMetadata], rule: HeartbeatRule
) -> Iterator[Finding]:
    writing = pending_writers(table, snapshot, rule)
    beats = {writer.operation.instant: writer.heartbeat for writer in writing}
    yield from _of_rollbacks(snapshot, written, beats, rule)
    now_ms = _now_ms()
    dated = snapshot.times_of(beats)
    ages = {
        instant: now_ms - max(filter(None, instant_times), default=now_ms)
        for instant, instant_times in dated.items()
    }
    stuck = [instant for instant, age_ms in ages.items() if age_ms >= STUCK_AFTER_MS]
    yield from writers.pending_without_heartbeat(beats, stuck)
    yield from stuck_actions(pending_actions(snapshot, rule), now_ms)
    kinds = map_concurrently(
        lambda instant: _marker_kind(table, instant), [instant.time for instant in beats]
    )
    yield from writers.mixed_markers({time: kind for time, kind in kinds.items() if kind})
    services = pending_table_services(snapshot, rule)
    plans = [(service.operation, service.heartbeat) for service in services]
    yield from writers.stuck_services(plans, now_ms, STUCK_AFTER_MS)
    dead = [writer.operation.instant for writer in (*writing, *services) if not writer.live]
    yield from writers.held_back_archival(snapshot.timeline.completed_writes(), dead, MOST_COMMITS)


def _of_rollbacks(
    snapshot: Snapshot,
    written: Mapping[Instant, CommitMetadata],
    beats: Mapping[Instant, Heartbeat],
    rule: HeartbeatRule,
) -> Iterator[Finding]:
    timeline = snapshot.timeline
    named = {
        instant: victims for instant, victims in snapshot.rollbacks() if instant.action == "rollback"
    }
    if not named:
        return
    times = snapshot.times_of(timeline)
    seen_rollbacks = [
        commits.SeenRollback(_outline(instant, times), names) for instant, names in named.items()
    ]
    services = {instant.time for instant, commit in written.items() if commit.is_table_service}
    yield from commits.eager_rollbacks(timeline, seen_rollbacks, beats, services)
    writes = [_outline(instant, times) for instant in timeline if instant.is_write]
    yield from commits.hasty_rollbacks(timeline, seen_rollbacks, writes, rule)


def _outline(instant: Instant, times: Mapping[Instant, Times]) -> ConcurrentOperation:
    return ConcurrentOperation(instant, **times[instant]._asdict())


def _marker_kind(table: HudiTable, time: str) -> str:
    """Return the kind of a write's markers; empty if it has made none yet."""
    names = table.files.below(f".hoodie/.temp/{time}")
    if MARKERS_TYPE_FILE in names:
        return "TIMELINE_SERVER_BASED"
    return "DIRECT" if names else ""


def _lost(loss: Loss) -> Finding:
    remedy = loss.error().remedy
    return Finding("lost_files", Severity.ERROR, (loss.instant,), str(loss), remedy)


def _unnamed(files: UnnamedFiles) -> Finding:
    visibility = (
        "readers treat them as committed"
        if files.are_visible
        else ("readers do not see them yet, but will once the timeline has moved past them")
    )
    return Finding(
        "unnamed_files",
        Severity.WARNING,
        (files.instant,),
        f"no commit names {some(files.paths)}, which a write of {files.instant} left: {visibility}",
        f"remove them with Hudi's HoodieRepairTool, for instant {files.instant}, after a backup",
    )


def _left(residue: Residue) -> Finding:
    severity = Severity.WARNING if residue.kind is Kind.DATA_FILES else Severity.NOTICE
    evidence = f"{residue.path} is left of a writer that has ended: {residue.proof}"
    return Finding(f"leftover_{residue.kind}", severity, (residue.instant,), evidence, residue.remedy)


def lock_use(lock: LockConnection, table: HudiTable, options: Mapping[str, str]) -> LockUse | None:
    """Return how often the connection's lock of a table was requested.

    Nothing is written. ZooKeeper counts requests. The file of the storage based lock is never deleted,
    and shows its last holder. A metastore, and a lock file that is deleted at each release, show
    nothing of the past.

    :param options: the lock options of the connection.
    :returns: ``None`` if the lock shows nothing.
    :raises LockUnreachableError: if the lock service does not answer in time.
    :raises ConfigurationError: if it denies access.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    provider = options.get(LOCK_PROVIDER)
    if provider == STORAGE_LOCK_PROVIDER:
        file = lock_file(table, options)
        return None if file is None or file.held else LockUse(file.path, 0, file.last_ms or 0)
    if provider != ZOOKEEPER_LOCK_PROVIDER:
        return None
    view = lock.commit_lock(table.path, table.config().name)
    if view is None:
        return None
    with closing(view):
        times = view.times_requested()
        return None if times is None else LockUse(view.path, times, view.counted_since_ms())


def other_locks(table: HudiTable, options: Mapping[str, str]) -> Iterator[OtherLock]:
    """Yield the lock files beside a table that are not the connection's.

    :param options: the lock options of the connection.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    our_file = lock_file(table, options)
    for file in lock_files_beside(table):
        if file.last_ms is not None and (our_file is None or file.path != our_file.path):
            yield OtherLock(file.path, file.last_ms)
