"""The audit of commits: whether their files still exist, and what removed them.

``Removals`` reads the cleans and rollbacks of a timeline, by file and by commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from posixpath import basename, dirname

from airflow_occ_provider.errors import DataLossError
from airflow_occ_provider.hudi.conflict.operation import is_before
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.writer.residue import procedure_call
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

_OF_A_ROLLBACK = (
    "find who wrote with single-writer settings just before that rollback and give it HudiWriteOperator"
)
_OF_NOBODY = "find what removes the table's files besides Hudi, such as a storage's lifecycle rule"


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
    return dirname(path), basename(path).removeprefix(".").partition("_")[0]


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
