"""The folder of an attempt and its driver, and all of a table, listed at once."""

from __future__ import annotations

import os
import posixpath
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar
from weakref import WeakSet, WeakValueDictionary

from airflow_occ_provider.errors import ConfigurationError, OccError, TableUnreadableError
from airflow_occ_provider.storage.address import fsspec_scheme, open_file_system, parse_table_path
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.listing import (
    StoredFile,
    is_s3,
    list_files,
    list_files_below,
    read_file,
)

HIDDEN = ".airflow_occ"
"""The folder beside a table that has those of its attempts."""
_TIMEOUT_S = 30.0
_PRIVATE = 0o600
STALE_S = 2.0
"""How much older than its call a listing may be; looks at drivers of a table begin together."""
_MOST_FILES = 1000  # a page of S3
_registry = threading.Lock()
# They live as long as a driver of the table is followed.
_listings: WeakValueDictionary[tuple[str, str | None], TableListing] = WeakValueDictionary()


def run_folder(table: str, identity: str) -> str:
    """Return the URL of the folder of a task run, as Hadoop spells it.

    It is beside the table, and has a folder for each attempt. Hudi takes a table for created if there is
    a ``.hoodie``, so nothing may be written there before Hudi does.

    :param table: base path of the table.
    :raises ConfigurationError: if the table is at the root of its storage.
    """
    scheme, path = parse_table_path(table)
    parent, name = posixpath.split(path)
    if not name or parent in ("", "/") or parent.endswith(":"):
        raise ConfigurationError(
            "table",
            f"{table!r} is at the root of its storage: there is no place beside it",
            remedy="put the table into a folder",
        )
    is_plain = scheme == "file" and path.startswith("/")
    return f"{'file://' if is_plain else ''}{parent}/{HIDDEN}/{name}/{identity}"


def identity_of(folder: str) -> str:
    """Return the identity of the task run to which an attempt's folder belongs.

    :param folder: its URL.
    """
    return posixpath.basename(posixpath.dirname(folder))


@dataclass(slots=True)
class AttemptFolder:
    """The files of one attempt.

    Each method raises ``TableUnreadableError`` if the storage does not answer or refuses.

    :param url: of the folder, as Hadoop spells it.
    :param timeout_s: of one request.
    :param mode: permissions of the files on a local disk; an object store has its own.
    """

    stale_s: ClassVar[float] = 0.0
    """How much older than its call a listing may be."""
    url: str
    file_system: Any = None
    timeout_s: float = _TIMEOUT_S
    mode: int = _PRIVATE
    _opened: TableFolder | None = field(default=None, init=False)

    def entries(self) -> dict[str, StoredFile]:
        """Return what the storage says of each file, by one listing."""
        file_system = self._folder.file_system
        return self._folder.ask("", partial(list_files, file_system)) or {}

    def below(self) -> dict[str, StoredFile]:
        """Return the same of all files below it, by their paths; on S3 only."""
        return self._folder.ask("", partial(list_files_below, self._folder.file_system)) or {}

    def read(self, name: str, start: int = 0) -> bytes | None:
        """Return a file's content; ``None`` if it does not exist.

        :param start: the first byte that is returned; the file has it.
        """
        return self._folder.ask(name, partial(read_file, self._folder.file_system, start=start))

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it.

        On HDFS an unfinished file is visible. The contract takes half a file for none.
        """
        folder = self._folder

        def write(path: str) -> None:
            parent, last = posixpath.split(path)
            if folder.scheme != "file":
                folder.file_system.pipe_file(path, content)
                return
            written = f"{parent}/.{last}.{secrets.token_hex(4)}"
            os.close(os.open(written, os.O_CREAT | os.O_WRONLY, self.mode))
            folder.file_system.pipe_file(written, content)
            os.replace(written, path)  # noqa: PTH105

        def write_below(path: str) -> None:
            try:
                write(path)
            except FileNotFoundError:
                if is_s3(folder.file_system):
                    raise  # there is no such bucket
                # Folders are made once: an object store would be asked in vain each time.
                folder.file_system.makedirs(posixpath.dirname(path), exist_ok=True)
                write(path)

        folder.ask(name, write_below)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._folder.remove(name)

    def clear(self) -> bool:
        """Remove all files and folders in it; return whether the storage could be reached."""
        folder = self._folder
        with suppress(TableUnreadableError):
            folder.ask("", lambda path: folder.file_system.rm(path, recursive=True))
            return True
        return False

    @property
    def _folder(self) -> TableFolder:
        """The folder, whose file system is opened with the first request."""
        if self._opened is None:
            scheme, path = parse_table_path(self.url)
            file_system = self.file_system or open_file_system(scheme, path)
            self._opened = TableFolder(scheme, path, file_system, self.timeout_s)
        return self._opened


def _of_process(url: str) -> None:  # noqa: ARG001 - the same for all folders
    """Return ``None``: the file system is opened with the process's own credentials."""
    return


@dataclass(frozen=True, slots=True)
class FolderStorage:
    """The storage of drivers' folders.

    :param name: by which another process opens it, such as that of a connection; ``None`` for the
        process's own credentials.
    :param file_system: returns fsspec's for the URL of a folder; ``None`` for those credentials.
    """

    name: str | None = None
    file_system: Callable[[str], Any] = _of_process

    def open(self, url: str) -> AttemptFolder:
        """Return the folder at a URL."""
        return AttemptFolder(url, file_system=self.file_system(url))


PROCESS_STORAGE = FolderStorage()


class TableListing:
    """The listing of all folders of a table's attempts, in one request.

    :param root: the folder that has them.
    """

    def __init__(self, root: AttemptFolder) -> None:
        self.followed: WeakSet[SharedFolder] = WeakSet()
        self.root = root
        self._lock = threading.Lock()
        self._begun_s = float("-inf")
        self._result: dict[str, dict[str, StoredFile]] | OccError = {}
        self._is_too_long = False

    @property
    def is_worth_it(self) -> bool:
        """Whether it costs less than a listing for each driver that is followed."""
        return len(self.followed) > 1 and not self._is_too_long

    def files(self, name: str, since_s: float) -> Mapping[str, StoredFile]:
        """Return the files of one folder, by a listing that another call may have made.

        :param name: of the folder, relative to the root.
        :param since_s: monotonic time before which the listing must not have begun.
        :raises TableUnreadableError: also that of another call.
        """
        with self._lock:
            if self._begun_s < since_s:
                self._begun_s = time.monotonic()
                try:
                    self._result = self._listed()
                except OccError as error:  # the other calls need not wait for a time-out each
                    self._result = error
            if isinstance(self._result, OccError):
                raise self._result
            return self._result.get(name, {})

    def _listed(self) -> dict[str, dict[str, StoredFile]]:
        files = self.root.below()
        self._is_too_long = len(files) > _MOST_FILES
        folders: dict[str, dict[str, StoredFile]] = {}
        for path, file in files.items():
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, {})[name] = file
        return folders


class SharedFolder:
    """The folder of an attempt, whose listings are shared with others of its table.

    :param name: of the folder in the table's.
    """

    stale_s = STALE_S

    def __init__(self, folder: AttemptFolder, listing: TableListing, name: str) -> None:
        self._folder, self._listing, self._name = folder, listing, name
        self._written_s = float("-inf")
        listing.followed.add(self)

    @property
    def url(self) -> str:
        """The address of the folder, as Hadoop spells it."""
        return self._folder.url

    def entries(self) -> Mapping[str, StoredFile]:
        """Return what the storage says of each file.

        A listing that has begun before the last write of this process is not taken.
        """
        files: Mapping[str, StoredFile] = {}
        if self._listing.is_worth_it:
            since_s = max(time.monotonic() - STALE_S, self._written_s)
            files = self._listing.files(self._name, since_s)
        # A folder that is new may not be in an older listing.
        return files or self._folder.entries()

    def read(self, name: str, start: int = 0) -> bytes | None:
        """Return a file's content, from a byte on; ``None`` if it does not exist."""
        return self._folder.read(name, start)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it."""
        self._folder.write(name, content)
        self._written_s = time.monotonic()


def shared_folder(
    url: str, storage_conn_id: str | None, open_folder: Callable[[str], AttemptFolder]
) -> AttemptFolder | SharedFolder:
    """Return a folder that shares listings and client with others of its table.

    Only on S3 does one listing show the folders below.

    :param storage_conn_id: connection of its storage.
    :param open_folder: opens a folder of that storage by its URL.
    """
    run, attempt = posixpath.split(url)
    root, identity = posixpath.split(run)
    is_of_table = posixpath.basename(posixpath.dirname(root)) == HIDDEN
    scheme, _ = parse_table_path(url)
    if fsspec_scheme(scheme) != "s3" or not is_of_table:
        return open_folder(url)
    key = root, storage_conn_id
    with _registry:
        listing = _listings.get(key)
    if listing is None:
        opened = TableListing(open_folder(root))  # may ask for the connection
        with _registry:
            listing = _listings.setdefault(key, opened)
    # A client of its own would open a connection for nearly each of its few requests.
    return SharedFolder(AttemptFolder(url, listing.root.file_system), listing, f"{identity}/{attempt}")
