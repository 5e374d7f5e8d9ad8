"""What the cleans and rollbacks of a timeline removed, by file and by commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from posixpath import basename, dirname

from airflow_occ_provider.hudi.conflict.operation import is_before
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.folder import map_concurrently
from airflow_occ_provider.storage.snapshot import Snapshot


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
