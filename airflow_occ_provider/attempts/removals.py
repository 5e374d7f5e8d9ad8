"""What the cleans and rollbacks of a timeline removed, by file and by commit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from posixpath import basename, dirname

from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import Instant
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
        return next((one for one in naming if not _came_before(one, commit)), None)

    def deleter(self, paths: tuple[str, ...]) -> Instant | None:
        """Return the first rollback that deleted one of some files."""
        found = (self._deleting.get(basename(path)) for path in paths)
        return min(filter(None, found), default=None)

    def unexplained(self, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files that no clean of the active timeline deletes."""
        return tuple(path for path in paths if basename(path) not in self._cleaned)

    def unexplained_by_history(self, commit: Instant, paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return the files of a commit that no clean accounts for.

        An archived clean may have deleted a file that a younger write replaced before the oldest clean
        of the active timeline.
        """
        left = self.unexplained(paths)
        if not left or not self._has_history:
            return left
        return tuple(
            path
            for path in left
            if self._replaced.get(_file_group(path), "") <= commit.time
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
        for one in self._of("rollback", "restore"):
            for name in self.snapshot.reader.deleted_names(one):
                deleting.setdefault(name, one)
        return deleting

    @cached_property
    def _cleaned(self) -> frozenset[str]:
        return frozenset[str]().union(*map(self.snapshot.reader.deleted_names, self._of("clean")))

    @cached_property
    def _has_history(self) -> bool:
        return self.snapshot.has_history()

    @cached_property
    def _replaced(self) -> dict[FileGroupId, str]:
        """The last write of each file group before the oldest clean of the active timeline."""
        oldest = next((one.time for one in self._of("clean")), None)
        replaced: dict[FileGroupId, str] = {}
        for one in self.snapshot.timeline.completed_writes():
            metadata = self.snapshot.reader.commit(one) if oldest is None or one.time < oldest else None
            if metadata:
                base_files = (path for path in metadata.paths if not basename(path).startswith("."))
                groups = {*map(_file_group, base_files), *metadata.replaced}
                replaced.update(dict.fromkeys(groups, one.time))
        return replaced

    def _of(self, *actions: str) -> Iterator[Instant]:
        return (one for one in self.snapshot.timeline if one.action in actions)


def _came_before(rollback: Instant, commit: Instant) -> bool:
    done, made = rollback.completion_time, commit.completion_time
    return bool(rollback.completed and done and made and done < made)


def _file_group(path: str) -> FileGroupId:
    return dirname(path), basename(path).removeprefix(".").partition("_")[0]
