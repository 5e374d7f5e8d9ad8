"""The audit of commits: whether their files still exist, and what removed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from posixpath import basename, dirname

from airflow_occ_provider.attempts.removals import Removals
from airflow_occ_provider.errors import DataLossError
from airflow_occ_provider.hudi.format.commit_metadata import CommitMetadata
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
