"""Reads archived instants: parquet files of layout 2, log files of layout 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import (
    HistoryUnreadableError,
    MetadataCorruptError,
    TableUnreadableError,
    install_extra,
)
from airflow_occ_provider.hudi.format.archive import (
    VERSION_FILE,
    Entry,
    InstantRecords,
    RecordPosition,
    archived_instants,
    instants_of,
    is_archive_file,
    newest_version,
    parse_manifest,
    parse_version,
    read_archived_record,
    read_entries,
)
from airflow_occ_provider.hudi.format.commit_metadata import (
    COMMIT_FIELDS,
    PLAN_FIELDS,
    ROLLBACK_FIELDS,
    Content,
)
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.folder import TableFolder, map_concurrently
from airflow_occ_provider.storage.listing import is_local, list_folder, read_file

INSTANT_COLUMNS = ("instantTime", "action", "completionTime")
_CONTENTS = ("instantTime", "metadata", "plan")


_T = TypeVar("_T")
_CHUNK_BYTES = 2 << 20
_Index: TypeAlias = dict[tuple[str, str], tuple[Instant, InstantRecords]]  # by time and action


class Contents(NamedTuple):
    """The contents of an archived instant's completed file, and of its plan."""

    metadata: Content | None = None
    plan: Content | None = None


class History:
    """The archived instants of one table of layout 2, listed once.

    Hudi merges files of the history and later deletes the merged ones, even while others read them. If
    a file is gone, the read starts again once, from the newest manifest. Each method raises
    ``HistoryUnreadableError`` without pyarrow, and ``TableUnreadableError`` if the history is damaged,
    or its files keep disappearing.
    """

    def __init__(self, folder: TableFolder, name: str) -> None:
        self._folder, self._name = folder, name
        self._fs = folder.file_system
        self._of_one_file: dict[Instant, Contents] = {}

    def instants(self, after_ms: int | None = None) -> tuple[Instant, ...]:
        """Return the archived instants, oldest first, without their contents.

        :param after_ms: epoch milliseconds; those in files last written before are left out.
        """
        if not after_ms:
            return self._instants
        listing = self._folder.listing(self._name)
        files = {instant.file_name for instant in self._instants}
        recent = {file for file in files if (listing.modified(file) or after_ms) >= after_ms}
        return tuple(instant for instant in self._instants if instant.file_name in recent)

    def contents(self, instant: Instant) -> Contents:
        """Return the contents of an archived instant's files.

        The contents of the same history file are read together, and kept until another is read.
        """
        of_one_file = self._of_one_file
        if instant not in of_one_file:  # a copy, since another thread may read another file meanwhile
            file = instant.file_name
            wanted = {other.time: other for other in self._instants if other.file_name == file}
            of_one_file = self._read(partial(self._contents, file, wanted)) or {}
            self._of_one_file = of_one_file
        return of_one_file.get(instant, Contents())

    @cached_property
    def _instants(self) -> tuple[Instant, ...]:
        def read(path: str) -> tuple[Instant, ...]:
            instants: dict[str, Instant] = {}
            # All of them: after an upgrade from table version 6 a name does not bound the times inside.
            for file in self._files(path):
                instants |= archived_instants(file, *self._columns(f"{path}/{file}", INSTANT_COLUMNS))
            return tuple(sorted(instants.values()))

        return self._read(read) or ()

    def _contents(self, file: str, wanted: Mapping[str, Instant], path: str) -> dict[Instant, Contents]:
        files = self._files(path) if wanted else ()
        return {
            wanted[time]: Contents(metadata, plan)
            for name in ([file] if file in files else files)  # merged since, if it is not there
            for time, metadata, plan in zip(*self._columns(f"{path}/{name}", _CONTENTS), strict=True)
            if time in wanted
        }

    def _read(self, read: Callable[[str], _T]) -> _T | None:
        return self._folder.ask(self._name, partial(_read_twice, read))

    def _files(self, path: str) -> tuple[str, ...]:
        version = None
        with suppress(FileNotFoundError):
            version = parse_version(read_file(self._fs, f"{path}/{VERSION_FILE}"))
        with suppress(FileNotFoundError):
            if version is None:
                version = newest_version(list_folder(self._fs, path).names)
        return (
            () if version is None else parse_manifest(read_file(self._fs, f"{path}/manifest_{version}"))
        )

    def _columns(self, path: str, names: Sequence[str]) -> list[list[Any]]:
        parquet = _parquet()
        if is_local(self._fs):
            table = parquet.ParquetFile(path).read(names, use_threads=False)
        else:
            with self._fs.open(path, "rb") as opened:
                table = parquet.ParquetFile(opened, pre_buffer=True).read(names, use_threads=False)
        return [table.column(name).to_pylist() for name in names]


def _read_twice(read: Callable[[str], _T], path: str) -> _T:
    try:
        return bounded(partial(read, path), (FileNotFoundError, ValueError), tries=2)
    except FileNotFoundError as error:
        raise TableUnreadableError(
            f"{path}: a file of the history disappeared twice while it was read: {error}",
            remedy="read again; if the error stays, the newest manifest names a lost file",
        ) from error
    except ValueError as error:  # also pyarrow's ArrowInvalid
        raise MetadataCorruptError(
            f"{path}: the history cannot be decoded: {error}",
            remedy="read again; if the error stays, the file was damaged after Hudi wrote it",
        ) from error


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise HistoryUnreadableError(
            "archived instants are parquet files, and pyarrow, which reads them, is not installed",
            remedy=install_extra("history"),
        ) from error
    return parquet


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
            fields = ROLLBACK_FIELDS if instant.action == "rollback" else COMMIT_FIELDS
            metadata = self._record(records.metadata, fields)
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
        return self._decoded(position.file, lambda: read_archived_record(position, data, fields))

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
