"""Reads the archived instants of layout 2, with pyarrow (an extra)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from airflow_occ_provider.errors import (
    HistoryUnreadableError,
    MetadataCorruptError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.format.history import (
    VERSION_FILE,
    archived_instants,
    newest_version,
    parse_manifest,
    parse_version,
)
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.hudi.format.record import Content
from airflow_occ_provider.storage.listing import is_local, list_folder

INSTANT_COLUMNS = ("instantTime", "action", "completionTime")
CONTENT_COLUMNS = ("instantTime", "metadata", "plan")

_T = TypeVar("_T")


class Contents(NamedTuple):
    """The contents of the files of an archived instant.

    :param metadata: content of its completed file.
    :param plan: content of its requested file, if that was a plan.
    """

    metadata: Content | None
    plan: Content | None


class History:
    """The archived instants of one table of layout 2; each call reads the storage.

    Hudi merges files of the history and later deletes the merged ones, even while others read them. If
    a file is gone, the read starts again once, from the newest manifest.

    :param path: the history's folder on it.
    """

    def __init__(self, file_system: Any, path: str) -> None:
        self._fs = file_system
        self._path = path

    def instants(self) -> tuple[Instant, ...]:
        """Return the archived instants, oldest first, without their contents.

        :raises HistoryUnreadableError: if pyarrow is not installed.
        :raises TableUnreadableError: if the history is damaged, or its files keep disappearing.
        """

        def read(files: Sequence[str]) -> tuple[Instant, ...]:
            found: dict[str, Instant] = {}
            for file in files:
                found |= archived_instants(file, *self._columns(file, INSTANT_COLUMNS))
            return tuple(sorted(found.values()))

        return self._read(read)

    def contents(self, instants: Iterable[Instant]) -> dict[Instant, Contents]:
        """Return the contents of archived instants' files; others are left out.

        :param instants: instants that ``instants`` returned.
        :raises HistoryUnreadableError: if pyarrow is not installed.
        :raises TableUnreadableError: if the history is damaged, or its files keep disappearing.
        """
        wanted = {instant.time: instant for instant in instants}
        files_asked_for = {instant.file_name for instant in wanted.values()}

        def read(files: Sequence[str]) -> dict[Instant, Contents]:
            return {
                wanted[time]: Contents(metadata, plan)
                for file in files
                if file in files_asked_for or not files_asked_for <= set(files)
                for time, metadata, plan in zip(*self._columns(file, CONTENT_COLUMNS), strict=True)
                if time in wanted
            }

        return self._read(read)

    def _read(self, read: Callable[[Sequence[str]], _T]) -> _T:
        try:
            return read(self._files())
        except (FileNotFoundError, ValueError):
            pass
        try:
            return read(self._files())
        except FileNotFoundError as error:
            raise TableUnreadableError(
                f"{self._path}: a file of the history disappeared twice while it was read: {error}",
                remedy="read again; if the error stays, the newest manifest names a lost file",
            ) from error
        except ValueError as error:  # also pyarrow's ArrowInvalid
            raise MetadataCorruptError(
                f"{self._path}: the history cannot be decoded: {error}",
                remedy="read again; if the error stays, the file was damaged after Hudi wrote it",
            ) from error

    def _files(self) -> tuple[str, ...]:
        version = parse_version(self._content(VERSION_FILE))
        if version is None:
            version = newest_version(self._names())
        if version is None:
            return ()
        return parse_manifest(self._fs.cat_file(f"{self._path}/manifest_{version}"))

    def _names(self) -> Sequence[str]:
        try:
            return list_folder(self._fs, self._path).names
        except FileNotFoundError:
            return ()

    def _content(self, name: str) -> bytes:
        try:
            content: bytes = self._fs.cat_file(f"{self._path}/{name}")
        except FileNotFoundError:
            return b""
        return content

    def _columns(self, file: str, names: Sequence[str]) -> list[list[Any]]:
        parquet = _parquet()
        path = f"{self._path}/{file}"
        if is_local(self._fs):
            table = parquet.ParquetFile(path).read(names, use_threads=False)
        else:
            with self._fs.open(path, "rb") as opened:
                table = parquet.ParquetFile(opened, pre_buffer=True).read(names, use_threads=False)
        return [table.column(name).to_pylist() for name in names]


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise HistoryUnreadableError(
            "archived instants are parquet files, and pyarrow, which reads them, is not installed",
            remedy="pip install 'airflow-occ-provider[history]'",
        ) from error
    return parquet
