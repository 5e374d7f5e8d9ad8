"""Reads from a table which commits a consumer can read next."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_occ_provider.errors import CheckpointLostError, ConfigurationError
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, Order
from airflow_occ_provider.hudi.incremental.window import (
    MOST_COMMITS,
    Pending,
    Release,
    Window,
    next_window,
    read_options,
    why_scanned,
    why_unreadable,
)
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import judge_writes

_SETTLED_S = 60.0
"""Hudi 0.15 takes the time of an instant some seconds before it can be seen."""


@dataclass(frozen=True, slots=True)
class IncrementalRead:
    """A window of a table, and how to read it.

    :param scan: why Hudi's incremental query may not show all of its rows; empty if it does.
    """

    window: Window
    config: TableConfig
    scan: str = ""

    @property
    def predicate(self) -> str:
        """The condition in Spark SQL that has to be added to the query."""
        return self.window.predicate

    def options(self, release: Release | str) -> Mapping[str, str]:
        """Return the options for ``spark.read.format("hudi").options(...)``.

        :param release: of the Hudi that reads: ``"0.15"``, ``"1.0"`` or ``"1.2"`` (also for 1.1).
        :raises ConfigurationError: if it is unknown, or cannot read the table.
        """
        if release not in frozenset(Release):
            raise ConfigurationError(
                "release",
                f"{release!r} is unknown",
                remedy=f"use {', '.join(Release)} (1.2 also for 1.1)",
            )
        chosen = Release(release)
        if reason := why_unreadable(chosen, self.config):
            raise ConfigurationError("release", reason, remedy="read it with a later Hudi")
        return read_options(self.window, chosen, scanned=bool(self.scan))


@dataclass(frozen=True, slots=True)
class WriteListing:
    """The writes of a table at one moment, from which windows are made."""

    snapshot: Snapshot
    pending: Pending


def incremental_read(
    table: HudiTable,
    since: Checkpoint | None = None,
    rule: HeartbeatRule = DEFAULT_RULE,
    *,
    previous: Snapshot | None = None,
    most: int = MOST_COMMITS,
) -> IncrementalRead:
    """Return the next window of a table, and how to read it.

    :param since: what the consumer has read; ``None`` for the whole table.
    :param rule: by which the writers' heartbeats are judged.
    :param previous: an earlier snapshot, which saves requests.
    :param most: at most so many commits.
    :raises ConfigurationError: as for ``window_after``.
    :raises CheckpointLostError: if the table has none of the commits that the consumer has read.
    :raises HistoryUnreadableError: if archived commits have to be read, and cannot.
    :raises NotHudiTableError: if there is no table at the path.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    return window_after(since, list_writes(table, rule, previous), most=most)


def list_writes(
    table: HudiTable, rule: HeartbeatRule = DEFAULT_RULE, previous: Snapshot | None = None
) -> WriteListing:
    """Return the writes of a table, with those that hold windows up.

    :param rule: by which the writers' heartbeats are judged.
    :param previous: an earlier snapshot, which saves requests.
    :raises NotHudiTableError: if there is no table at the path.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    snapshot = table.snapshot(previous)
    if Order.of(snapshot.config) is Order.REQUESTED:
        return _judged(table, snapshot, rule)
    return WriteListing(snapshot, _pending(snapshot))


def window_after(
    since: Checkpoint | None, writes: WriteListing, *, most: int = MOST_COMMITS
) -> IncrementalRead:
    """Return the window after a checkpoint, and how to read it.

    :param since: what the consumer has read; ``None`` for the whole table.
    :param most: at most so many commits.
    :raises ConfigurationError: if the table's rows do not have Hudi's columns, by which they are chosen.
    :raises CheckpointLostError: if the table has none of the commits that the consumer has read.
    :raises HistoryUnreadableError: if archived commits have to be read, and cannot.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    if not writes.snapshot.config.has_meta_fields:
        raise ConfigurationError(
            "table",
            f"{writes.snapshot.path} has hoodie.populate.meta.fields=false, so its rows do not name the "
            "commits that wrote them, and no window of commits can be read",
            remedy="read the whole table, or make it anew with hoodie.populate.meta.fields=true",
        )
    snapshot = writes.snapshot
    pending = writes.pending
    since = None if since and since.is_empty else since
    order = Order.of(snapshot.config)
    completed = completed_writes(snapshot, since)
    is_partly_archived = since is None and completed and snapshot.has_history()
    unbroken = snapshot.timeline.unbroken_since()
    oldest = min(filter(None, (unbroken, *pending.all)), default="")
    window = next_window(
        since,
        order,
        completed,
        pending,
        archived_before=oldest if is_partly_archived else "",
        most=most,
    )
    is_settled = order is Order.COMPLETED or all(
        _is_settled(snapshot, commit) for commit in window.commits
    )
    scan = why_scanned(window, snapshot.timeline, snapshot.config, is_settled=is_settled)
    return IncrementalRead(window, snapshot.config, scan)


def _pending(snapshot: Snapshot) -> Pending:
    return Pending(tuple(write.time for write in snapshot.timeline.pending_writes()))


def _is_settled(snapshot: Snapshot, commit: Instant) -> bool:
    """Whether a commit is so old that all writes which were requested before it are visible."""
    written_ms = snapshot.written_ms(commit.file_name)
    return written_ms is not None and written_ms < (time.time() - _SETTLED_S) * 1000


def completed_writes(snapshot: Snapshot, since: Checkpoint | None) -> list[Instant]:
    """Return the completed writes, with archived ones if a checkpoint is that old.

    :param since: what the consumer has read; ``None`` if only the active timeline matters.
    :raises CheckpointLostError: if the table has none of the commits that the consumer has read.
    :raises HistoryUnreadableError: if archived commits have to be read, and cannot.
    """
    active = list(snapshot.timeline.completed_writes())
    if since is None or not _may_be_archived(since, snapshot, active):
        return active
    completed = [*_archived(snapshot), *active]
    _refuse_lost(snapshot.path, since, completed)
    return completed


def _judged(table: HudiTable, before: Snapshot, rule: HeartbeatRule) -> WriteListing:
    """Return the writes a little later, and which of the pending ones may still complete.

    A lazy clean would roll the others back: their writers are dead.
    """
    judged = judge_writes(table, before, rule, always_again=True)
    living = (write.time for write, heartbeat in judged.heartbeats.items() if heartbeat.live)
    live = judged.awaited.union(living, (write.time for write in judged.begun))
    return WriteListing(judged.snapshot, Pending(_pending(judged.snapshot).all, live))


def _may_be_archived(since: Checkpoint, snapshot: Snapshot, active: list[Instant]) -> bool:
    """Whether commits after a checkpoint may no longer be in the active timeline.

    If a commit that was read is still in the unbroken part of the timeline, all later ones are active,
    but for those that were pending then.
    """
    vanished = (name for name in since.pending if snapshot.timeline.find(name) is None)
    if any(snapshot.rollback_of(name) is None for name in vanished):
        return True
    order = Order.of(snapshot.config)
    read = {commit.requested for commit in since.read}
    if since.is_empty or since.order is not order:  # what an upgrade archived is placed anew
        return not since.is_empty
    unbroken = [commit for commit in active if commit.time >= snapshot.timeline.unbroken_since()]
    if read:
        return not any(commit.time in read for commit in unbroken)
    return not unbroken or order.position(unbroken[0]) > since.time


def _archived(snapshot: Snapshot) -> list[Instant]:
    archived = snapshot.whole().history() if snapshot.has_history() else ()
    find = snapshot.timeline.find
    return [instant for instant in archived if instant.is_write and find(instant.time) is None]


def _refuse_lost(path: str, since: Checkpoint, completed: list[Instant]) -> None:
    read = {commit.requested for commit in since.read}
    if read and not any(instant.time in read for instant in completed):
        raise CheckpointLostError(
            f"{path} has none of the last {len(read)} commits that the consumer has read, up to "
            f"{max(read)}: the table was made anew, or restored to an earlier state",
            remedy="begin anew: with the whole table, or with what follows one of its commits "
            "(`airflow hudi checkpoints set`)",
        )
