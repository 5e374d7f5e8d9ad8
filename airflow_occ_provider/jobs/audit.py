"""The audit of a commit: are its files still there, and if not, who took them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_occ_provider.errors import DataLossError
from airflow_occ_provider.hudi.instant import Instant
from airflow_occ_provider.hudi.metadata import CommitMetadata, FileGroup
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class Loss:
    """Data of a completed commit that is gone, or is about to go.

    :param instant: requested time of the commit.
    :param culprit: the rollback that names the commit or deleted its files, where one is found.
    :param missing: paths of its files that are gone without a reason, relative to the base path.
    :param files: how many files it had written.
    """

    instant: str
    culprit: Instant | None
    missing: tuple[str, ...]
    files: int

    def error(self) -> DataLossError:
        """Return the error that it deserves: never a success."""
        return DataLossError(
            f"data loss: {self}",
            instant=self.instant,
            remedy="find who wrote with single-writer settings just before that rollback and give it "
            f"HudiWriteOperator; then CALL rollback_to_instant for {self.instant}, and clear the task",
        )

    def __str__(self) -> str:
        gone = f"{len(self.missing)} of its {self.files} files are gone"
        by = f"rollback {self.culprit.time} ({self.culprit.state}) took it back" if self.culprit else ""
        return f"commit {self.instant} is in the table, but {'; '.join(filter(None, (gone, by)))}"


def audit(
    table: HudiTable, snapshot: Snapshot, instant: Instant, metadata: CommitMetadata
) -> Loss | None:
    """Look whether a completed commit still has its data; ``None`` where all is well.

    Costs one listing per partition that it wrote. A file that a clean deleted, or plans to, is no
    loss: its file group was replaced, compacted or clustered before. A rollback of a completed
    commit is one: only a neighbour that took the writer for dead makes it. One that was completed
    before the commit is none, if the files are there: it came while nothing was written yet, and
    took the request alone (Hudi 1.2.0 leaves an inflight file that is younger than its plan).

    :param snapshot: one that shows the commit completed.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    missing = _absent(snapshot, metadata.paths)
    later = table.snapshot(snapshot)
    if missing:
        missing = _unexplained(later, missing)
    culprit = _taker(later, instant) or _deleter(later, missing)
    if culprit is None and not missing:
        return None
    return Loss(instant.time, culprit, missing, len(metadata.paths))


def built_upon(snapshot: Snapshot, time: str) -> Instant | None:
    """Return a write, pending or done, that touches file groups of an older commit.

    Where there is none, the commit can be rolled back without taking anybody else's rows along.

    :param time: requested time of the commit.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    commit = snapshot.timeline.find(time)
    groups = _touched(snapshot, commit) if commit else frozenset()
    others = (one for one in snapshot.timeline if one.is_write and one.time != time)
    return next((one for one in others if one.time > time and groups & _touched(snapshot, one)), None)


def _touched(snapshot: Snapshot, write: Instant) -> frozenset[FileGroup]:
    told = snapshot.commit(write) if write.completed else snapshot.profile(write)
    return told.file_groups | told.replaced if told else frozenset()


def _absent(snapshot: Snapshot, paths: Iterable[str]) -> tuple[str, ...]:
    by_partition: dict[str, list[str]] = {}
    for path in paths:
        by_partition.setdefault(path.rpartition("/")[0], []).append(path)
    return tuple(
        path
        for partition, written in by_partition.items()
        for present in [snapshot.data_files(partition)]
        for path in written
        if _name(path) not in present
    )


def _unexplained(snapshot: Snapshot, missing: tuple[str, ...]) -> tuple[str, ...]:
    cleans = (instant for instant in snapshot.timeline if instant.action == "clean")
    cleaned = frozenset[str]().union(*map(snapshot.deleted_names, cleans))
    return tuple(path for path in missing if _name(path) not in cleaned)


def _taker(snapshot: Snapshot, commit: Instant) -> Instant | None:
    naming = (rollback for rollback, victims in snapshot.rollbacks() if commit.time in victims)
    return next((one for one in naming if not _came_before(one, commit)), None)


def _came_before(rollback: Instant, commit: Instant) -> bool:
    done, made = rollback.completion_time, commit.completion_time
    return bool(rollback.completed and done and made and done < made)


def _deleter(snapshot: Snapshot, missing: tuple[str, ...]) -> Instant | None:
    names = set(map(_name, missing))
    rollbacks = (rollback for rollback, _ in snapshot.rollbacks())
    return next((one for one in rollbacks if names & snapshot.deleted_names(one)), None)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
