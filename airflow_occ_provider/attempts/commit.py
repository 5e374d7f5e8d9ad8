"""Signed commits: how a task run finds its own commits in the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from airflow_occ_provider.attempts.audit import audit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record_parts import NOTHING_BEFORE, TableBefore
from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    HistoryUnreadableError,
    MetadataCorruptError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

MOST_BEFORE = 1000
"""Completed writes in a task's record. Of more, the others are read again by a search."""
MOST_PARTITIONS = 1000
"""Of a write, in XCom, in the task's record and in a lease: such stores hold some tens of kB."""
MOST_UNRECORDED = 1000
"""Active writes, and archived ones, among which the commit of a run without a record is looked for."""
_LOOKS = 5
_YOUNGEST = 5
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Commit:
    """A signed commit, found in the table."""

    instant: Instant
    metadata: CommitMetadata

    def facts(self, most: int = MOST_PARTITIONS) -> dict[str, Any]:
        """Return what it did, for XCom and asset events.

        :param most: of more partitions, only the first ones are named.
        """
        left_out = len(self.metadata.partitions) - most
        return {
            "instant": self.instant.time,
            "action": self.instant.action,
            "operation": self.metadata.operation_type,
            "partitions": list(self.metadata.partitions[:most]),
            "file_groups": len(self.metadata.file_groups | self.metadata.replaced),
            "records": self.metadata.records,
            **({"partitions_left_out": left_out} if left_out > 0 else {}),
        }


_Wanted: TypeAlias = Callable[[Commit], bool]

NO_COMMIT: dict[str, Any] = {
    "instant": None,
    "instants": [],
    "action": None,
    "operation": None,
    "partitions": [],
    "file_groups": 0,
    "records": 0,
}
"""The facts of an attempt that wrote nothing."""


def table_before(snapshot: Snapshot) -> TableBefore:
    """Return what a table has now, before the first attempt of a task run."""
    commits = snapshot.timeline.completed_writes()[-MOST_BEFORE:]
    youngest = snapshot.timeline.instants[-_YOUNGEST:]
    written = filter(None, (snapshot.written_ms(instant.file_name) for instant in youngest))
    return TableBefore(frozenset(commit.time for commit in commits), max(written, default=0))


def find_commit(
    snapshot: Snapshot,
    identity: str,
    before: TableBefore = NOTHING_BEFORE,
    reported: Sequence[str] = (),
) -> Commit | None:
    """Find a write commit that carries an identity.

    Those that its driver reported are looked at first, then the active timeline, youngest first, then
    what may have been archived since. Commits of table services copy the labels of the write that ran
    them, and do not count.

    :param before: what the table had before the commit can have been made.
    :param reported: requested times of the writes that its driver has reported.
    :raises HistoryUnreadableError: if only archived instants can show it, and they cannot be read.
    :raises MetadataCorruptError: if it may be one whose file is damaged.
    """
    return _Search(snapshot, before, reported).first(_signed_by([identity]))


def find_recorded(
    snapshot: Snapshot, instants: Sequence[str], before: TableBefore = NOTHING_BEFORE
) -> Commit | None:
    """Find the youngest write commit among some instants.

    :param instants: requested times.
    :param before: as in ``find_commit``.
    :raises HistoryUnreadableError: as ``find_commit``.
    """
    return _Search(snapshot, before, instants).first(_among(instants)) if instants else None


class _GoneError(Exception):
    """A listed file no longer existed when it was read."""


@dataclass(slots=True)
class _Search:
    """The completed writes of a table that a task run may have made.

    A file that disappears between the listing and the read was archived, rolled back, or moved by an
    upgrade: then the table is listed again and the history is searched too.

    :param reported: requested times of the writes that the run's drivers have reported.
    :param most: active writes, and archived ones, that are looked at; ``None`` for all.
    """

    snapshot: Snapshot
    before: TableBefore
    reported: Sequence[str] = ()
    most: int | None = None
    _has_missed: bool = False
    _unreadable: TableUnreadableError | None = None

    def __post_init__(self) -> None:
        self.snapshot = self.snapshot.whole()

    def first(self, wanted: _Wanted) -> Commit | None:
        """Return the first write that is wanted.

        One that cannot be read ends the search only if no other is wanted: it may be that one.
        """
        try:
            return bounded(
                partial(self._look, wanted), _GoneError, tries=_LOOKS, before_next=self._reload
            )
        except _GoneError as error:
            raise TableUnreadableError(
                f"{self.snapshot.path}: files of the timeline keep vanishing before they can be read",
                remedy="the next try looks again",
            ) from error

    def _look(self, wanted: _Wanted) -> Commit | None:
        self._unreadable = None
        commit = next(filter(wanted, self._commits()), None)
        if commit is None and self._unreadable:
            raise self._unreadable
        return commit

    def _reload(self, _: object) -> None:
        self.snapshot = self.snapshot.reload()
        self._has_missed = True

    def _commits(self) -> Iterator[Commit]:
        active = self._ordered(self.snapshot.timeline.completed_writes())
        # Mostly it is one of those that the driver reported.
        first = sum(instant.time in self.reported for instant in active) or 1
        starts = [0, *range(first, len(active), _AT_ONCE)]
        for start, end in zip(starts, [*starts[1:], len(active)], strict=True):
            batch = active[start:end]
            contents = map_concurrently(self._content, batch)
            for instant in batch:
                content = contents[instant]
                if content is None:
                    raise _GoneError
                yield from self._commit(instant, content)
        if self._may_be_archived():
            history = self.snapshot.history(self.before.moment_ms)
            for instant in self._ordered([archived for archived in history if archived.is_write]):
                yield from self._commit(instant, self._content(instant) or _undecodable(instant))

    def _ordered(self, writes: Sequence[Instant]) -> list[Instant]:
        """Return those that the run may have made: the reported ones, then the youngest first."""
        candidates = reversed([write for write in writes if write.time not in self.before.commits])
        return sorted(candidates, key=lambda write: write.time not in self.reported)[: self.most]

    def _may_be_archived(self) -> bool:
        """Whether a write that the table did not have before can have been archived.

        Not if all reported ones are active, and not if nothing was archived since.
        """
        is_active = map(self.snapshot.timeline.find, self.reported)
        if self.reported and all(is_active) and not self._has_missed:
            return False
        return self.snapshot.has_history(self.before.moment_ms)

    def _content(self, instant: Instant) -> CommitMetadata | MetadataCorruptError | None:
        try:
            return self.snapshot.reader.commit(instant)
        except MetadataCorruptError as error:
            return error

    def _commit(
        self, instant: Instant, content: CommitMetadata | TableUnreadableError
    ) -> Iterator[Commit]:
        if isinstance(content, TableUnreadableError):
            self._unreadable = content
        else:
            yield Commit(instant, content)


def _undecodable(instant: Instant) -> HistoryUnreadableError:
    return HistoryUnreadableError(
        f"what archived {instant} did cannot be decoded, by Hudi neither: its upgrade of the table left "
        "Avro without a schema",
        remedy="upgrade with Hudi 1.2, which archives what can be read",
    )


def _signed_by(identities: Sequence[str]) -> _Wanted:
    def wanted(commit: Commit) -> bool:
        signature = Signature.from_extra(commit.metadata.extra)
        is_own = signature is not None and signature.identity in identities
        return is_own and not commit.metadata.is_table_service

    return wanted


def _among(instants: Sequence[str]) -> _Wanted:
    return lambda commit: commit.instant.time in instants and not commit.metadata.is_table_service


def earlier_commit(
    table: HudiTable,
    identities: Sequence[str],
    before: TableBefore = NOTHING_BEFORE,
    recorded: Sequence[str] = (),
    *,
    must_exist: bool = False,
    signed: bool = True,
) -> Commit | None:
    """Find what an earlier try of a task run committed, and check its data.

    :param before: what the table had before the first of them.
    :param recorded: recorded requested times of the writes of earlier tries.
    :param must_exist: whether the table is known to have existed: then a missing table means that the
        storage does not show it.
    :param signed: whether the job's commits are signed; else the recorded writes are the task run's.
    :raises CommitStateUnknownError: if only archived instants can show it, and they cannot be read; or
        if a recorded write is completed without a signature.
    :raises DataLossError: if the commit exists and files of it are gone.
    """
    snapshot = table.snapshot(missing_ok=not must_exist)
    search = _Search(snapshot, before, recorded)
    try:
        commit = search.first(_signed_by(identities))
        if commit is None and recorded and not signed:
            commit = search.first(_among(recorded))
    except HistoryUnreadableError as error:
        raise CommitStateUnknownError(
            f"commit state unknown: an earlier try may have committed, and {error.message}",
            remedy=f"{error.remedy}; or look there for _airflow_identity={identities[0]}: if it is in "
            "no commit, delete hudi_write from the task's state store and clear the task",
        ) from error
    if commit is None:
        _refuse_unsigned(search, recorded)
        return None
    loss = audit(table, snapshot, commit.instant, commit.metadata)
    if loss:
        raise loss.error()
    return commit


def unrecorded_commit(snapshot: Snapshot, signature: Signature, due_ms: int = 0) -> Commit | None:
    """Find a commit that a task run made, by the labels of its signature.

    It is for a run whose record is missing. What was written or archived before the run was due costs
    at most the listings; of the rest only the youngest writes are looked at.

    :param signature: of one of its tries.
    :param due_ms: epoch milliseconds before which the run has written nothing; 0 if unknown.
    :raises HistoryUnreadableError: as ``find_commit``.
    :raises MetadataCorruptError: as ``find_commit``.
    """

    def wanted(commit: Commit) -> bool:
        label = Signature.from_extra(commit.metadata.extra)
        return label is not None and label.run == signature.run and not commit.metadata.is_table_service

    completed = snapshot.timeline.completed_writes()
    times = snapshot.last_times(completed) if due_ms else {}
    written_ms = ((write, moments.completed_ms) for write, moments in times.items())
    before = frozenset(write.time for write, moment_ms in written_ms if (moment_ms or due_ms) < due_ms)
    return _Search(snapshot, TableBefore(before, due_ms), most=MOST_UNRECORDED).first(wanted)


def run_commits(
    snapshot: Snapshot, identities: Sequence[str], before: TableBefore, recorded: Sequence[str] = ()
) -> list[Commit]:
    """Return the write commits of a task run in the active timeline, oldest first.

    :param before: the table before its first attempt.
    :param recorded: requested times of the run's writes, for a job whose commits are not signed.
    """
    writes = snapshot.timeline.completed_writes()
    later = (write for write in writes if write.time not in before.commits)
    commits = (Commit(write, metadata) for write in later if (metadata := snapshot.reader.commit(write)))
    is_signed, is_recorded = _signed_by(identities), _among(recorded)
    return [commit for commit in commits if is_signed(commit) or is_recorded(commit)]


def facts_of(commits: Sequence[Commit], most: int = MOST_PARTITIONS) -> dict[str, Any]:
    """Return what a task run did to the table, for XCom and asset events.

    Instant, action and operation are those of its youngest commit; ``instants`` names them all.

    :param commits: of the task run, oldest first.
    :param most: of more partitions, only the first ones are named; of more commits, the last ones.
    """
    if not commits:
        return NO_COMMIT
    writes = [commit.metadata for commit in commits]
    partitions = tuple(dict.fromkeys(path for write in writes for path in write.partitions))
    groups = frozenset[FileGroupId]().union(*(write.file_groups | write.replaced for write in writes))
    return {
        **commits[-1].facts(most),
        "instants": [commit.instant.time for commit in commits[-most:]],
        "partitions": list(partitions[:most]),
        "file_groups": len(groups),
        "records": sum(write.records for write in writes),
        **({"partitions_left_out": len(partitions) - most} if len(partitions) > most else {}),
    }


def _refuse_unsigned(search: _Search, recorded: Sequence[str]) -> None:
    def unsigned(commit: Commit) -> bool:
        is_own = commit.instant.time in recorded and not commit.metadata.is_table_service
        return is_own and not Signature.from_extra(commit.metadata.extra)

    commit = search.first(unsigned) if recorded else None
    if commit:
        raise CommitStateUnknownError(
            f"commit state unknown: {commit.instant} was completed by an earlier try, but it is not "
            "signed",
            remedy="leave hoodie.datasource.write.commitmeta.key.prefix alone in the job; if that "
            "commit is this task's work, mark the task as success, else delete hudi_write from its "
            "state store and clear it",
        )
