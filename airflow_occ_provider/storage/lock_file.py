"""Reads the lock files of Hudi's lock providers that use the storage."""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from airflow_occ_provider.errors import MetadataCorruptError
from airflow_occ_provider.hudi.writer.options import FILE_LOCK_EXPIRE, FILE_LOCK_PATH, LOCK_PROVIDER
from airflow_occ_provider.storage.address import open_file_system, parse_table_path
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.table import HudiTable

_STORAGE_LOCK = ".hoodie/.locks/table_lock.json"
# Hudi allows for this clock difference before it takes a lock over (1.2.0, StorageBasedLockProvider).
_CLOCKS_APART_MS = 500


@dataclass(frozen=True, slots=True)
class LockFile:
    """A table's lock, by its file and this machine's clock.

    :param since_ms: epoch milliseconds at which the holder took it, by the storage's clock.
    :param until_ms: epoch milliseconds at which it expires unless it is renewed.
    """

    path: str
    held: bool = False
    owner: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def last_ms(self) -> int | None:
        """When the lock was held last, at most; ``None`` without a file.

        A released storage lock keeps the time until which it was valid (Hudi 1.2.0,
        ``StorageBasedLockProvider``).
        """
        return self.until_ms or self.since_ms


def lock_file(table: HudiTable, options: Mapping[str, str]) -> LockFile | None:
    """Return a table's lock file; ``None`` if the lock provider does not use one.

    :raises TableUnreadableError: if the storage cannot be read.
    :raises ConfigurationError: if no file system is installed for it.
    """
    kind = options[LOCK_PROVIDER].rpartition(".")[2]
    read = _READERS.get(kind)
    return read(table, options) if read else None


def lock_files_beside(table: HudiTable) -> tuple[LockFile, ...]:
    """Return the lock files that exist beside a table, of any lock provider.

    A file at another place than the default one is not among them.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    files = (read(table, {}) for read in _READERS.values())
    return tuple(file for file in files if file.last_ms is not None)


def _file_system_lock(table: HudiTable, options: Mapping[str, str]) -> LockFile:
    folder = _lock_folder(table, options.get(FILE_LOCK_PATH, ""))
    path = f"{folder.path}/lock"
    listing = folder.listing("")
    if "lock" not in listing.names:
        return LockFile(path)
    since_ms = listing.modified("lock")
    minutes = options.get(FILE_LOCK_EXPIRE, "0")
    until_ms = None
    if since_ms is not None and minutes.isdigit() and int(minutes):
        until_ms = since_ms + int(minutes) * 60_000
    return LockFile(path, until_ms is None or _now_ms() <= until_ms, "", since_ms, until_ms)


def _lock_folder(table: HudiTable, folder: str) -> TableFolder:
    files = table.files
    base = urlsplit(table.path)
    if folder and "://" not in folder and base.scheme:
        folder = f"{base.scheme}://{posixpath.join(base.netloc, folder.lstrip('/'))}"
    scheme, path = parse_table_path(folder or f"{table.path}/.hoodie")
    served = files.file_system if scheme == table.scheme else open_file_system(scheme, path)
    return TableFolder(scheme, path, served, files.timeout_s)


def _storage_lock(table: HudiTable, _: Mapping[str, str]) -> LockFile:
    path = f"{table.path}/{_STORAGE_LOCK}"
    content = table.files.read(_STORAGE_LOCK)
    if content is None:
        return LockFile(path)
    try:
        lock = json.loads(content)
        until_ms, owner, expired = int(lock["validUntil"]), str(lock["owner"]), bool(lock["expired"])
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorruptError(
            f"{path} is not a lock file: {error}", remedy="read again; each renewal replaces the file"
        ) from error
    held = not expired and _now_ms() <= until_ms + _CLOCKS_APART_MS
    return LockFile(path, held, owner, None, until_ms)


def _now_ms() -> int:
    return round(time.time() * 1000)


_READERS: dict[str, Callable[[HudiTable, Mapping[str, str]], LockFile]] = {
    "FileSystemBasedLockProvider": _file_system_lock,
    "StorageBasedLockProvider": _storage_lock,
}
