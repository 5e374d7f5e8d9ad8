"""Signed commits: how a task run finds its own, and whether their files exist.

``Removals`` reads the cleans and rollbacks of a timeline, by file and by commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from posixpath import basename, dirname
from typing import Any, TypeAlias

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.record import NOTHING_BEFORE, TableBefore
from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    DataLossError,
    HistoryUnreadableError,
    MetadataCorruptError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.conflict.operation import is_before
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId, file_id
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.fate import procedure_call
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_OF_A_ROLLBACK = (
    "find what wrote with single-writer settings just before that rollback and give it HudiWriteOperator"
)
_OF_NOBODY = "find what removes the table's files besides Hudi, such as a storage's lifecycle rule"
MOST_BEFORE = 1000
"""Completed writes in a task's record. Of more, the others are read again by a search."""
MOST_PARTITIONS = 1000
"""Of a write, in XCom, in the task's record and in a lease: such stores hold some tens of kB."""
MOST_UNRECORDED = 1000
"""Active writes, and archived ones, among which the commit of a run without a record is looked for."""
_LOOKS = 5
_YOUNGEST = 5
_AT_ONCE = 64
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


@dataclass(frozen=True, slots=True)
class Loss:
    """Data of a completed commit that was removed, or is about to be.

    :param culprit: the rollback that names the commit or deleted its files, if one is found.
    :param missing: paths of its files that nothing accounts for, relative to the base path.
    """

    instant: str
    culprit: Instant | None
    missing: tuple[str, ...]
    files: int
    statement: str = ""

    def error(self) -> DataLossError:
        """Return the error with which the task fails."""
        return DataLossError(
            f"data loss: {self}",
            instant=self.instant,
            remedy=f"{_OF_A_ROLLBACK if self.culprit else _OF_NOBODY}; then {run_again(self.statement)}",
            statement=self.statement,
        )

    def __str__(self) -> str:
        gone = f"{len(self.missing)} of its {self.files} files are gone"
        by = (
            f"{self.culprit.action} {self.culprit.time} ({self.culprit.state}) took it back"
            if self.culprit
            else ""
        )
        return f"commit {self.instant} is in the table, but {'; '.join(filter(None, (gone, by)))}"


def run_again(statement: str) -> str:
    """Return the steps that replace a commit that lost its files by a new one."""
    return (
        f"run {statement} in Spark SQL with the writers' lock, and clear the task that wrote it "
        "(where there are younger commits, Hudi refuses that, or takes them back too: some releases do)"
    )


class Removals:
    """The removals that a snapshot shows; each clean and rollback is read once.

    Reading raises ``TableUnreadableError`` if the storage cannot be read.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def taker(self, commit: Instant) -> Instant | None:
        """Return the first rollback that names a commit, unless it completed before it."""
        naming = self._naming.get(commit.time, ())
        return next((rollback for rollback in naming if not self._came_before(rollback, commit)), None)

    def deleter(self, paths: tuple[str, ...]) -> Instant | None:
        """Return the first rollback that deleted one of some files."""
        rollbacks = (self._deleting.get(basename(path)) for path in paths)
        return min(filter(None, rollbacks), default=None)

    def unexplained(self, commit: Instant, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files that no clean, younger slice or replacement accounts for.

        A clean that deleted a file may be archived. Then a younger write shows it: it wrote a base file
        of the same file group, or replaced the group. That explains no file that a rollback deleted.

        :param commit: the commit that wrote them.
        """
        uncleaned = tuple(path for path in paths if basename(path) not in self._cleaned)
        return tuple(
            path
            for path in uncleaned
            if self._superseded.get(_file_group(path), "") <= commit.time
            or basename(path) in self._deleting
        )

    @cached_property
    def _naming(self) -> dict[str, list[Instant]]:
        naming = defaultdict(list)
        for rollback, victims in self.snapshot.rollbacks():
            for victim in victims:
                naming[victim].append(rollback)
        return naming

    @cached_property
    def _deleting(self) -> dict[str, Instant]:
        deleting: dict[str, Instant] = {}
        for instant in self._of("rollback", "restore"):
            for name in self.snapshot.reader.deleted_names(instant):
                deleting.setdefault(name, instant)
        return deleting

    @cached_property
    def _cleaned(self) -> frozenset[str]:
        return frozenset[str]().union(*map(self.snapshot.reader.deleted_names, self._of("clean")))

    @cached_property
    def _superseded(self) -> dict[FileGroupId, str]:
        """The last write that gave each file group a base file, or replaced it."""
        writes = self.snapshot.timeline.completed_writes()
        commits = map_concurrently(self.snapshot.reader.commit, writes)
        superseded: dict[FileGroupId, str] = {}
        for write in writes:
            metadata = commits[write]
            if metadata:
                base_files = (path for path in metadata.paths if not basename(path).startswith("."))
                groups = {*map(_file_group, base_files), *metadata.replaced}
                superseded.update(dict.fromkeys(groups, write.time))
        return superseded

    def _came_before(self, rollback: Instant, commit: Instant) -> bool:
        done, made = rollback.completion_stamp, commit.completion_stamp
        if done and made:
            return done < made
        written_ms = self.snapshot.written_ms
        return rollback.completed and is_before(
            written_ms(rollback.file_name), written_ms(commit.file_name)
        )

    def _of(self, *actions: str) -> Iterator[Instant]:
        return (instant for instant in self.snapshot.timeline if instant.action in actions)


def _file_group(path: str) -> FileGroupId:
    return dirname(path), file_id(path)


def audit(
    table: HudiTable, snapshot: Snapshot, instant: Instant, metadata: CommitMetadata
) -> Loss | None:
    """Return what a completed commit has lost; ``None`` if it still has its data.

    Costs one listing per partition that it wrote, several at once. A file that a clean deleted, or
    plans to delete, is no loss, and neither is one whose file group has a younger slice or was
    replaced. A rollback of a completed commit is a loss: only another writer that counted this one as
    dead starts it. A rollback that completed before the commit is none if the files exist: nothing was
    written yet, and it removed only the request (Hudi 1.2.0 leaves an inflight file that is younger
    than its plan). The files of an archived commit are not looked for: the writes and cleans that
    came after it may be archived too.

    :param snapshot: one that shows the commit completed.
    """
    return audit_all(table, snapshot, [(instant, metadata)])


def audit_all(
    table: HudiTable, snapshot: Snapshot, commits: Sequence[tuple[Instant, CommitMetadata]]
) -> Loss | None:
    """Return what the first of some commits that lost data has lost; see ``audit``.

    :param snapshot: one that shows the commits completed.
    """
    losses = _losses(table, snapshot, commits)
    return next((loss for loss in losses if loss.culprit or loss.missing), None)


def audit_table(table: HudiTable, snapshot: Snapshot) -> tuple[Loss, ...]:
    """Return the completed writes of the active timeline that have lost files.

    Costs one listing per partition that they wrote.

    :returns: those with missing files that nothing accounts for, oldest first.
    """
    writes = (
        (instant, snapshot.reader.commit(instant)) for instant in snapshot.timeline.completed_writes()
    )
    commits = [(instant, metadata) for instant, metadata in writes if metadata]
    losses = _losses(table, snapshot, commits)
    return tuple(loss for loss in losses if loss.missing)


def _losses(
    table: HudiTable,
    snapshot: Snapshot,
    commits: Sequence[tuple[Instant, CommitMetadata]],
) -> list[Loss]:
    audited = [() if instant.archived else metadata.paths for instant, metadata in commits]
    present = map_concurrently(
        snapshot.data_files, {dirname(path) for paths in audited for path in paths}
    )
    absent = [
        tuple(path for path in paths if basename(path) not in present[dirname(path)])
        for paths in audited
    ]
    later = table.snapshot(snapshot).whole()  # shows the plan of a clean that ran meanwhile
    removals = Removals(later)
    losses = []
    for (instant, metadata), gone in zip(commits, absent, strict=True):
        missing = removals.unexplained(instant, gone) if gone else ()
        culprit = removals.taker(instant) or (removals.deleter(missing) if missing else None)
        statement = procedure_call("rollback_to_instant", later.config, instant.time)
        losses.append(Loss(instant.time, culprit, missing, len(metadata.paths), statement))
    return losses


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
