"""Examines a table: reads what the checks of ``hudi.doctor`` need, and runs them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from airflow_occ_provider.attempts.audit import Loss, audit_table
from airflow_occ_provider.attempts.lock_connection import LockConnection
from airflow_occ_provider.attempts.lock_evidence import lock_use, other_locks
from airflow_occ_provider.hudi.conflict.evidence import is_non_blocking
from airflow_occ_provider.hudi.conflict.operation import (
    ConcurrentOperation,
    Times,
    completed_operation,
)
from airflow_occ_provider.hudi.doctor import clocks, commits, locks, rollbacks, writers
from airflow_occ_provider.hudi.doctor.finding import Finding, Severity
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.markers import MARKERS_TYPE_FILE
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat, HeartbeatRule
from airflow_occ_provider.hudi.writer.residue import Kind, Residue
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.residue import residues
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_table_services, pending_writers

STUCK_AFTER_MS = 6 * 3_600_000
MOST_COMMITS = 30  # hoodie.keep.max.commits of Hudi 1.2.0
_ORDER = list(Severity)


def examine(
    table: HudiTable, rule: HeartbeatRule = DEFAULT_RULE, lock: LockConnection | None = None
) -> tuple[Finding, ...]:
    """Return what the table's metadata shows of unsafe writers, the worst first.

    Reads the active timeline with the commit of each of its writes, and lists their partitions.
    Nothing is written, neither to the table nor to the lock service.

    :param rule: the heartbeat rule of the writers.
    :param lock: the lock connection of the writers: whether they use its lock is examined too.
    :raises TableUnreadableError: if the storage cannot be read, or there is no table.
    :raises LockUnreachableError: if the lock service does not answer in time.
    :raises ConfigurationError: if it denies access.
    """
    snapshot = table.snapshot()
    done = snapshot.timeline.completed_writes()
    read = map_concurrently(snapshot.reader.commit, done)
    known = {one: found for one, found in read.items() if found}
    times = snapshot.times_of(known)
    operations = [completed_operation(one, found, None, times[one]) for one, found in known.items()]
    found = [
        *_of_commits(snapshot, known, operations),
        *(_of_lock(table, lock, known, operations) if lock else ()),
        *_of_pending(table, snapshot, known, rule),
        *map(_lost, audit_table(table, snapshot)),
        *map(_left, residues(table, rule)),
    ]
    return tuple(sorted(found, key=lambda one: (_ORDER.index(one.severity), one.check, one.instants)))


def _of_commits(
    snapshot: Snapshot,
    known: Mapping[Instant, CommitMetadata],
    operations: Sequence[ConcurrentOperation],
) -> Iterator[Finding]:
    mode = snapshot.config.concurrency_mode
    if not any(is_non_blocking(one, mode) for one in operations):
        yield from commits.unchecked_commits(operations)
    yield from commits.completion_times(snapshot.timeline)
    yield from commits.colliding_instants(snapshot.timeline)
    yield from clocks.time_zones(operations)
    yield from clocks.fast_clocks(operations)
    yield from writers.unsigned_writes(known)
    yield from writers.mixed_releases(snapshot.config.version, known)


def _of_lock(
    table: HudiTable,
    lock: LockConnection,
    known: Mapping[Instant, CommitMetadata],
    operations: Sequence[ConcurrentOperation],
) -> Iterator[Finding]:
    options = lock.options(table.path)
    signed = {one.time for one, commit in known.items() if writers.is_signed(commit)}
    use = lock_use(lock, table, options)
    if use:
        yield from locks.unshared_lock(use, operations, signed)
    yield from locks.other_lock_files(other_locks(table, options), operations)
    yield from locks.other_lock_options(table.config().properties, options)


def _of_pending(
    table: HudiTable, snapshot: Snapshot, known: Mapping[Instant, CommitMetadata], rule: HeartbeatRule
) -> Iterator[Finding]:
    writing = pending_writers(table, snapshot, rule)
    beats = {one.operation.instant: one.heartbeat for one in writing}
    yield from _of_rollbacks(snapshot, known, beats, rule)
    yield from writers.pending_without_heartbeat(beats)
    kinds = map_concurrently(lambda one: _marker_kind(table, one), [one.time for one in beats])
    yield from writers.mixed_markers({time: kind for time, kind in kinds.items() if kind})
    services = pending_table_services(snapshot, rule)
    plans = [(one.operation, one.heartbeat) for one in services]
    yield from writers.stuck_services(plans, round(time.time() * 1000), STUCK_AFTER_MS)
    dead = [one.operation.instant for one in (*writing, *services) if not one.live]
    yield from writers.held_back_archival(snapshot.timeline.completed_writes(), dead, MOST_COMMITS)


def _of_rollbacks(
    snapshot: Snapshot,
    known: Mapping[Instant, CommitMetadata],
    beats: Mapping[Instant, Heartbeat],
    rule: HeartbeatRule,
) -> Iterator[Finding]:
    timeline = snapshot.timeline
    named = {one: victims for one, victims in snapshot.rollbacks() if one.action == "rollback"}
    if not named:
        return
    times = snapshot.times_of(timeline)
    found = [rollbacks.SeenRollback(_outline(one, times), names) for one, names in named.items()]
    services = {one.time for one, commit in known.items() if commit.is_table_service}
    yield from rollbacks.eager_rollbacks(timeline, found, beats, services)
    writes = [_outline(one, times) for one in timeline if one.is_write]
    yield from rollbacks.hasty_rollbacks(timeline, found, writes, rule)


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


def _left(residue: Residue) -> Finding:
    severity = Severity.WARNING if residue.kind is Kind.DATA_FILES else Severity.NOTICE
    evidence = f"{residue.path} is left of a writer that has ended: {residue.proof}"
    return Finding(f"leftover_{residue.kind}", severity, (residue.instant,), evidence, residue.remedy)
