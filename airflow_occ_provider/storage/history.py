"""Reads the archived instants of layout 2, with pyarrow (an extra)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import (
    HistoryUnreadableError,
    MetadataCorruptError,
    TableUnreadableError,
    install_extra,
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
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.listing import is_local, list_folder
from airflow_occ_provider.storage.s3_requests import read_file

INSTANT_COLUMNS = ("instantTime", "action", "completionTime")
_CONTENTS = ("instantTime", "metadata", "plan")

_T = TypeVar("_T")


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
