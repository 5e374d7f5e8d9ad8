"""Reads the archive of a table of layout 1, each record on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import MetadataCorruptError, TableUnreadableError
from airflow_occ_provider.hudi.format.archive import (
    Entry,
    InstantRecords,
    RecordPosition,
    instants_of,
    is_archive_file,
    read_entries,
    read_record,
)
from airflow_occ_provider.hudi.format.commit_metadata import COMMIT_FIELDS
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.plans import PLAN_FIELDS
from airflow_occ_provider.hudi.format.record import Content
from airflow_occ_provider.storage.folder import TableFolder, map_concurrently
from airflow_occ_provider.storage.history import Contents

_CHUNK_BYTES = 2 << 20
_T = TypeVar("_T")
_Index: TypeAlias = dict[tuple[str, str], tuple[Instant, InstantRecords]]  # by time and action


class Archive:
    """The archived instants of one table of layout 1.

    Hudi merges files of the archive and then deletes the merged ones, even while others read them. If
    a file is gone, the read starts again once. Each method raises ``TableUnreadableError`` if the
    storage cannot be read, or the archive is damaged.
    """

    def __init__(self, folder: TableFolder, name: str) -> None:
        self._folder, self._name = folder, name
        self._by_instant: _Index | None = None
        self._after_ms: int | None = None  # of the instants in _by_instant

    def instants(self, after_ms: int | None = None) -> tuple[Instant, ...]:
        """Return the archived instants, oldest first.

        :param after_ms: epoch milliseconds; files last written before are not read. Default: all files.
        """
        # Never narrowed: `contents` still finds instants that were returned before.
        if self._by_instant is None or (self._after_ms or 0) > (after_ms or 0):
            self._by_instant, self._after_ms = None, after_ms
        return tuple(sorted(instant for instant, _ in self._again(self._index).values()))

    def contents(self, instant: Instant) -> Contents:
        """Return the metadata and the plan of an archived instant."""

        def read() -> Contents:
            _, records = self._index().get(instant[:2], (instant, InstantRecords()))
            metadata = self._record(records.metadata, COMMIT_FIELDS)
            return Contents(metadata, self._record(records.plan, PLAN_FIELDS))

        return self._again(read)

    def _again(self, read: Callable[[], _T]) -> _T:
        def forget(_: object) -> None:
            self._by_instant = None

        try:
            return bounded(read, FileNotFoundError, tries=2, before_next=forget)
        except FileNotFoundError as error:
            raise TableUnreadableError(
                f"{self._folder.path}/{self._name}/{error} disappeared twice while the archive was read",
                remedy="read again",
            ) from error

    def _index(self) -> _Index:
        if self._by_instant is None:
            files = sorted(self._files(), key=_number)
            entries = map_concurrently(self._entries, files)
            by_instant = instants_of(entry for file in files for entry in entries[file])
            self._by_instant = {
                instant[:2]: (instant, positions) for instant, positions in by_instant.items()
            }
        return self._by_instant

    def _files(self) -> list[str]:
        listed = self._folder.listing(self._name)
        after_ms = self._after_ms
        files = list(filter(is_archive_file, listed.names))
        if not after_ms:
            return files

        def is_recent(file: str) -> bool:
            written_ms = listed.modified(file)
            return written_ms is None or written_ms >= after_ms

        recent = self._folder.ask(self._name, lambda _: list(filter(is_recent, files)))
        return files if recent is None else recent

    def _entries(self, file: str) -> list[Entry]:
        chunks = _Chunks(self._folder, self._name, file)
        return self._decoded(file, lambda: list(read_entries(file, chunks.read, chunks.size)))

    def _record(self, position: RecordPosition | None, fields: frozenset[str]) -> Content | None:
        if position is None:
            return None
        data = _Chunks(self._folder, self._name, position.file).request(position.start, position.stop)
        return self._decoded(position.file, lambda: read_record(position, data, fields))

    def _decoded(self, file: str, decode: Callable[[], _T]) -> _T:
        try:
            return decode()
        except (KeyError, ValueError) as error:
            raise MetadataCorruptError(
                f"{self._folder.path}/{self._name}/{file} cannot be decoded: {error}",
                remedy="read again; if the error stays, the file was damaged after Hudi wrote it",
            ) from error


class _Chunks:
    """A file, read in chunks of one request each; the last two chunks are kept."""

    def __init__(self, folder: TableFolder, parent: str, file: str) -> None:
        self._folder, self._file = folder, file
        self._path = f"{parent}/{file}"
        self._chunks: dict[int, bytes] = {}

    @property
    def size(self) -> int:
        """The file's length; a request only if the file is longer than a chunk."""
        first = self._chunk(0)
        if len(first) < _CHUNK_BYTES:
            return len(first)
        return int(self._ask(self._folder.file_system.size))

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from one offset up to another, or to the end of the file."""
        first, last = start // _CHUNK_BYTES, (stop - 1) // _CHUNK_BYTES
        if first != last:
            return self.request(start, stop) if start < stop else b""
        begin = first * _CHUNK_BYTES
        return self._chunk(first)[start - begin : stop - begin]

    def request(self, start: int, stop: int) -> bytes:
        """Return the bytes from one offset up to another, in one request."""
        data: bytes = self._ask(lambda path: self._folder.file_system.cat_file(path, start, stop))
        return data

    def _chunk(self, number: int) -> bytes:
        if number not in self._chunks:
            start = number * _CHUNK_BYTES
            self._chunks = dict(list(self._chunks.items())[-1:])
            self._chunks[number] = self.request(start, start + _CHUNK_BYTES)
        return self._chunks[number]

    def _ask(self, call: Callable[[str], _T]) -> _T:
        answer = self._folder.ask(self._path, call)
        if answer is None:
            raise FileNotFoundError(self._file)
        return answer


def _number(file: str) -> int:
    return int(file.split(".")[3].partition("_")[0])
