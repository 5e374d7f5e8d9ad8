"""The commits of a table that a watcher has not seen yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.rivals import meet
from airflow_occ_provider.errors import CheckpointLostError, TableUnreadableError
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, Order
from airflow_occ_provider.hudi.incremental.window import read_before
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.incremental import completed_writes
from airflow_occ_provider.storage.snapshot import Snapshot

MOST_PARTITIONS = 100
"""Of a commit, in an event."""
MOST_COMMITS = 100
"""In an event."""


@dataclass(frozen=True, slots=True)
class CommitFilter:
    """The commits that a watcher waits for; by default those of all writers.

    :param partitions: partition paths, each with everything below it, of which one is written; empty
        for all.
    :param operations: Hudi's operation types in upper case, such as ``UPSERT``; empty for all.
    :param signed: labels of the signature, such as ``dag_id`` and ``run_id``, with their values.
    """

    partitions: tuple[str, ...] = ()
    operations: frozenset[str] = frozenset()
    signed: tuple[tuple[str, str], ...] = ()

    def accepts(self, commit: Commit) -> bool:
        """Whether a commit is one of them. One of a table service never is."""
        metadata = commit.metadata
        if metadata.is_table_service:
            return False
        if self.operations and metadata.operation_type not in self.operations:
            return False
        if self.partitions and not meet(self.partitions, metadata.partitions):
            return False
        return not self.signed or _is_signed(commit, self.signed)


@dataclass(frozen=True, slots=True)
class NewCommits:
    """Commits in the order in which they completed, and the checkpoint after them.

    :param made_anew: why all commits of the table are new, if its watcher has seen others.
    """

    commits: tuple[Commit, ...]
    checkpoint: Checkpoint
    made_anew: str = ""


def all_seen(snapshot: Snapshot) -> Checkpoint:
    """Return the checkpoint of a watcher for which all commits so far are old."""
    order = Order.of(snapshot.config)
    return _after(Checkpoint(order), snapshot.timeline.completed_writes(), snapshot)


def seen_up_to(snapshot: Snapshot, time: str) -> Checkpoint:
    """Return the checkpoint of a watcher that has seen all up to an instant.

    :param time: its requested time; if the active timeline does not have it, a moment. Empty for none.
    """
    order, instant = Order.of(snapshot.config), snapshot.timeline.find(time)
    position = order.position(instant) if instant and instant.completed else time
    return Checkpoint(order, position)


def new_commits(
    snapshot: Snapshot, since: Checkpoint, wanted: CommitFilter, most: int = MOST_COMMITS
) -> NewCommits:
    """Return the oldest commits that a watcher has not seen.

    :param most: at most so many are looked at.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    order = Order.of(snapshot.config)
    try:
        writes = completed_writes(snapshot, since)
    except CheckpointLostError as error:
        return replace(new_commits(snapshot, Checkpoint(order), wanted, most), made_anew=error.message)
    unseen = [one for one in writes if not since.has_read(one)]
    unseen = sorted(unseen, key=Order.COMPLETED.position)[:most]
    read = map_concurrently(snapshot.reader.commit, unseen)
    if gone := [one for one in unseen if read[one] is None and not one.archived]:
        raise TableUnreadableError(
            f"{snapshot.path}: {gone[0]} left the timeline while it was read",
            remedy="it was archived or rolled back; the next look shows which",
        )
    commits = (Commit(one, metadata) for one in unseen if (metadata := read[one]))
    seen = [*read_before(since, writes, order), *unseen] if unseen else []
    return NewCommits(tuple(filter(wanted.accepts, commits)), _after(since, seen, snapshot))


def event_of(commit: Commit) -> dict[str, Any]:
    """Return what an event says of a commit: the same whenever it is looked at."""
    signature = Signature.from_extra(commit.metadata.extra)
    facts: Mapping[str, Any] = commit.facts(MOST_PARTITIONS)
    labels = asdict(signature) if signature else None
    return {**facts, "completion_time": commit.instant.completion_time, "signature": labels}


def _after(since: Checkpoint, seen: Sequence[Instant], snapshot: Snapshot) -> Checkpoint:
    pending = snapshot.timeline.pending_writes()
    oldest = pending[0].time if pending else ""
    return since.after(seen, Order.of(snapshot.config), oldest_pending=oldest) if seen else since


def _is_signed(commit: Commit, signed: Sequence[tuple[str, str]]) -> bool:
    signature = Signature.from_extra(commit.metadata.extra)
    labels = asdict(signature) if signature else {}
    return all(str(labels.get(key, "")) == value for key, value in signed)
