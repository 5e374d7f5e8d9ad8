"""The commits of a table that a watcher has not seen yet."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.rivals import meet
from airflow_occ_provider.errors import CheckpointLostError, ConfigurationError, TableUnreadableError
from airflow_occ_provider.hudi.format.instant import Instant, naive_ms
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, Order
from airflow_occ_provider.hudi.incremental.window import advanced
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.incremental import completed_writes
from airflow_occ_provider.storage.snapshot import Snapshot

MOST_PARTITIONS = 100
"""Of a commit, in an event."""
MOST_COMMITS = 100
"""In an event."""
_BEFORE_ALL = "0"
LABELS = frozenset(label.name for label in fields(Signature))
"""The labels of a signature."""


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

    @classmethod
    def of(
        cls,
        partitions: str | Sequence[str],
        operations: str | Sequence[str],
        signed: Mapping[str, object] | None,
    ) -> CommitFilter:
        """Return the filter that a user describes: one name or several, in any case."""
        paths = tuple(path.strip("/") for path in _listed(partitions))
        kinds = frozenset(name.upper() for name in _listed(operations))
        return cls(paths, kinds, tuple(sorted((key, str(v)) for key, v in (signed or {}).items())))

    @property
    def description(self) -> str:
        """The filter as text, equal for equal filters in all processes."""
        return json.dumps([self.partitions, sorted(self.operations), self.signed])

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
    :param is_beginning: whether the checkpoint is the one from which the watcher counts.
    """

    commits: tuple[Commit, ...]
    checkpoint: Checkpoint
    made_anew: str = ""
    is_beginning: bool = False


def refuse_unknown_labels(signed: Iterable[str] | None) -> None:
    """Raise for a label that no signature has.

    :raises ConfigurationError: then.
    """
    if unknown := {*(signed or ())} - LABELS:
        raise ConfigurationError(
            "signed",
            f"{', '.join(sorted(unknown))}: a signature has no such label",
            remedy=f"use {', '.join(sorted(LABELS))}",
        )


def beginning(snapshot: Snapshot, start: str) -> Checkpoint:
    """Return the checkpoint from which a watcher counts.

    :param snapshot: of its first look, also of a table that does not exist yet.
    :param start: ``latest``, ``earliest``, or the requested time of an instant.
    """
    if start == "earliest":
        return _nothing_seen(snapshot)
    return all_seen(snapshot) if start == "latest" else seen_up_to(snapshot, start)


def all_seen(snapshot: Snapshot) -> Checkpoint:
    """Return the checkpoint of a watcher for which all commits so far are old."""
    return _seen(snapshot, snapshot.timeline.completed_writes())


def seen_up_to(snapshot: Snapshot, time: str) -> Checkpoint:
    """Return the checkpoint of a watcher that has seen all up to an instant.

    Those have completed when that had.

    :param time: its requested time; if the active timeline does not have it, a moment. Empty for none.
    """
    instant = snapshot.timeline.find(time)
    writes = snapshot.timeline.completed_writes()
    completed_ms = _completions(snapshot)
    if instant and instant.completed:
        end = completed_ms(instant)
        return _seen(snapshot, [write for write in writes if completed_ms(write) <= end])
    if Order.of(snapshot.config) is Order.REQUESTED:
        return _seen(snapshot, [write for write in writes if write.time <= time])
    old = [write for write in writes if (write.completion_time or "") <= time]
    return _seen(snapshot, old) if old else Checkpoint(Order.COMPLETED, time)


def seen_before(snapshot: Snapshot, times: Collection[str]) -> Checkpoint:
    """Return the checkpoint of a watcher that has seen all before some commits.

    :param times: their requested times. Without any, all that the active timeline has counts as seen; if
        one of them is archived, nothing does.
    """
    instants = [*map(snapshot.timeline.find, times)]
    writes = snapshot.timeline.completed_writes()
    active = [instant for instant in instants if instant]
    if len(active) < len(instants):
        return _seen(snapshot, [])
    completed_ms = _completions(snapshot)
    first = min(map(completed_ms, active), default=None)
    return _seen(snapshot, [write for write in writes if first is None or completed_ms(write) < first])


def new_commits(
    snapshot: Snapshot, since: Checkpoint, wanted: CommitFilter, most: int = MOST_COMMITS
) -> NewCommits:
    """Return the oldest commits that a watcher has not seen.

    Archived ones that Hudi cannot decode either are left out. Of a table that was made anew all are new,
    once it has one.

    :param most: at most so many; those that are not wanted are passed over.
    :raises HistoryUnreadableError: if archived commits have to be read, and cannot.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    try:
        writes = completed_writes(snapshot, since)
    except CheckpointLostError as error:
        if not snapshot.timeline.completed_writes():  # deleted, or moved and perhaps back later
            return NewCommits((), since)
        anew = Checkpoint(Order.of(snapshot.config))
        return replace(new_commits(snapshot, anew, wanted, most), made_anew=error.message)
    unseen = sorted(since.unread(writes), key=_completions(snapshot))
    commits = list[Commit]()
    end = 0
    while end < len(unseen) and not commits:
        batch = unseen[end : end + most]
        end += most
        commits = list(filter(wanted.accepts, _commits(snapshot, batch)))
    return NewCommits(tuple(commits), _advanced(since, unseen[:end], writes, snapshot))


def event_of(commit: Commit) -> dict[str, Any]:
    """Return what an event says of a commit: the same whenever it is looked at."""
    signature = Signature.from_extra(commit.metadata.extra)
    facts: Mapping[str, Any] = commit.facts(MOST_PARTITIONS)
    labels = asdict(signature) if signature else None
    return {**facts, "completion_time": commit.instant.completion_time, "signature": labels}


def _completions(snapshot: Snapshot) -> Callable[[Instant], int]:
    """Return the order of completion: of times that Hudi took under its lock, else of files.

    An archived instant has no file of its own: its time is placed among those of files by the zone that
    most instants of the table have.
    """
    ahead_ms = snapshot.ahead_ms()

    def completed_ms(instant: Instant) -> int:
        if instant.completion_stamp or instant.archived:
            named_ms = naive_ms(instant.completion_time or "")
            return 0 if named_ms is None else named_ms - ahead_ms
        return snapshot.written_ms(instant.file_name) or 0

    return completed_ms


def _seen(snapshot: Snapshot, commits: Sequence[Instant]) -> Checkpoint:
    writes = snapshot.timeline.completed_writes()
    return _advanced(_nothing_seen(snapshot), commits, writes, snapshot)


def _nothing_seen(snapshot: Snapshot) -> Checkpoint:
    """Return the checkpoint before all commits: those of the active timeline, if there are any.

    Of a table without commits it is before all that it will have, also if they are archived meanwhile.
    """
    begun = snapshot.timeline.completed_writes()
    return Checkpoint(Order.of(snapshot.config), "" if begun else _BEFORE_ALL)


def _advanced(
    since: Checkpoint, commits: Sequence[Instant], writes: Sequence[Instant], snapshot: Snapshot
) -> Checkpoint:
    pending = [write.time for write in snapshot.timeline.pending_writes()]
    return advanced(since, commits, writes, Order.of(snapshot.config), pending)


def _commits(snapshot: Snapshot, instants: Sequence[Instant]) -> Iterator[Commit]:
    read = map_concurrently(snapshot.reader.commit, instants)
    for instant in instants:
        metadata = read[instant]
        if metadata is None and not instant.archived:
            raise TableUnreadableError(
                f"{snapshot.path}: {instant} left the timeline while it was read",
                remedy="it was archived or rolled back; the next look shows which",
            )
        if metadata is not None:
            yield Commit(instant, metadata)


def _listed(names: str | Sequence[str]) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


def _is_signed(commit: Commit, signed: Sequence[tuple[str, str]]) -> bool:
    signature = Signature.from_extra(commit.metadata.extra)
    labels = asdict(signature) if signature else {}
    return all(str(labels.get(key, "")) == value for key, value in signed)
