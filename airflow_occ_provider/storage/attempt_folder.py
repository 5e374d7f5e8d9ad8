"""The folder by which an attempt and its driver communicate."""

from __future__ import annotations

import os
import posixpath
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from airflow_occ_provider.errors import ConfigurationError, TableUnreadableError
from airflow_occ_provider.storage.address import open_file_system, parse_table_path
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.listing import StoredFile, list_files, list_files_below
from airflow_occ_provider.storage.s3_requests import is_s3, read_file

HIDDEN = ".airflow_occ"
"""The folder beside a table that has those of its attempts."""
_TIMEOUT_S = 30.0
_PRIVATE = 0o600


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
