"""Reads archived instants; pyarrow, an extra, is imported when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from airflow_occ_provider.errors import (
    HistoryUnreadableError,
    MetadataCorruptError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.history import (
    VERSION_FILE,
    archived_instants,
    newest_version,
    parse_manifest,
    parse_version,
)
from airflow_occ_provider.hudi.instant import Instant
from airflow_occ_provider.storage.listing import is_local, list_folder

INSTANT_COLUMNS = ("instantTime", "action", "completionTime")
CONTENT_COLUMNS = ("instantTime", "metadata", "plan")

_T = TypeVar("_T")


class Contents(NamedTuple):
    """What the files of an archived instant held, as they were.

    :param metadata: of its completed file.
    :param plan: of its requested file, where that was a plan.
    """

    metadata: bytes | None
    plan: bytes | None


class History:
    """The archived instants of one table; each call reads the storage anew.

    Hudi merges files of the history and later deletes the merged ones, also while others read: a
    reader that finds one gone starts over once, from the manifest that is the newest by then.

    :param file_system: an fsspec file system.
    :param path: the history's folder on it; layout 1 has its archive there.
    :param layout_version: ``hoodie.timeline.layout.version`` of the table.
    """

    def __init__(self, file_system: Any, path: str, layout_version: str = "2") -> None:
        self._fs = file_system
        self._path = path
        self._layout_version = layout_version

    def instants(self) -> tuple[Instant, ...]:
        """Return the archived instants, oldest first, without reading what they did.

        :raises HistoryUnreadableError: for an archive of layout 1, or if pyarrow is not installed.
        :raises TableUnreadableError: if the history is damaged, or keeps vanishing.
        """

        def read(files: Sequence[str]) -> tuple[Instant, ...]:
            found: dict[str, Instant] = {}
            for file in files:
                found |= archived_instants(file, *self._columns(file, INSTANT_COLUMNS))
            return tuple(sorted(found.values()))

        return self._read(read)

    def contents(self, instants: Iterable[Instant]) -> dict[Instant, Contents]:
        """Return what the files of archived instants held; of all others nothing.

        :param instants: as ``instants`` returns them.
        :raises HistoryUnreadableError: for an archive of layout 1, or if pyarrow is not installed.
        :raises TableUnreadableError: if the history is damaged, or keeps vanishing.
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
                f"{self._path}: a file of the history has vanished twice while it was read: {error}",
                remedy="read again; if it stays so, the newest manifest names a file that is lost",
            ) from error
        except ValueError as error:  # also pyarrow's ArrowInvalid
            raise MetadataCorruptError(
                f"{self._path}: the history cannot be decoded: {error}",
                remedy="read again; if it stays so, the file was damaged after Hudi had written it",
            ) from error

    def _files(self) -> tuple[str, ...]:
        if self._layout_version == "1":
            self._refuse_archive()
            return ()
        version = parse_version(self._content(VERSION_FILE))
        if version is None:
            version = newest_version(self._names())
        if version is None:
            return ()
        return parse_manifest(self._fs.cat_file(f"{self._path}/manifest_{version}"))

    def _refuse_archive(self) -> None:
        if any(".archive" in name for name in self._names()):
            raise HistoryUnreadableError(
                f"{self._path} is an archive of table version 6: log files of Hudi's own format, which "
                "only Hudi itself reads; from table version 8 on it is parquet",
                remedy="ask Hudi for archived instants: CALL show_archived_commits(table => '...') in "
                "Spark SQL, or upgrade the table",
            )

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
            "archived instants are kept in parquet files; pyarrow, which reads them, is not installed",
            remedy="pip install 'airflow-occ-provider[history]'",
        ) from error
    return parquet
