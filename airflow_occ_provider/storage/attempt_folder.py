"""The folder by which an attempt and its driver communicate."""

from __future__ import annotations

import os
import posixpath
import secrets
from dataclasses import dataclass, field
from typing import Any

from airflow_occ_provider.storage.address import open_file_system, parse_table_path
from airflow_occ_provider.storage.folder import TableFolder

_TIMEOUT_S = 30.0
_PRIVATE = 0o600
# Where a file that is being written is visible: there it is replaced by a rename.
_SHOWS_UNFINISHED_FILES = ("file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "o3fs")


@dataclass(slots=True)
class AttemptFolder:
    """The files of one attempt. A reader sees each as a whole, or not at all.

    Each method raises ``TableUnreadableError`` if the storage does not answer or refuses.

    :param url: of the folder, as Hadoop spells it.
    :param timeout_s: of one request.
    :param mode: permissions of the files on a local disk; an object store has its own.
    """

    url: str
    file_system: Any = None
    timeout_s: float = _TIMEOUT_S
    mode: int = _PRIVATE
    _opened: TableFolder | None = field(default=None, init=False)

    def names(self) -> frozenset[str]:
        """List the folder, in one request."""
        return frozenset(self._folder.listing("").names)

    def read(self, name: str) -> bytes | None:
        """Return a file's content; ``None`` if it does not exist."""
        return self._folder.read(name)

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it."""
        folder = self._folder

        def write(path: str) -> None:
            parent, last = posixpath.split(path)
            is_seen_early = folder.scheme in _SHOWS_UNFINISHED_FILES
            written = f"{parent}/.{last}.{secrets.token_hex(4)}" if is_seen_early else path
            folder.file_system.makedirs(parent, exist_ok=True)
            if folder.scheme == "file":
                os.close(os.open(written, os.O_CREAT | os.O_WRONLY, self.mode))
            folder.file_system.pipe_file(written, content)
            if written != path and folder.scheme == "file":
                os.replace(written, path)  # noqa: PTH105
            elif written != path:
                folder.file_system.mv(written, path)

        folder.ask(name, write)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._folder.remove(name)

    @property
    def _folder(self) -> TableFolder:
        """The folder, whose file system is opened with the first request."""
        if self._opened is None:
            scheme, path = parse_table_path(self.url)
            file_system = self.file_system or open_file_system(scheme, path)
            self._opened = TableFolder(scheme, path, file_system, self.timeout_s)
        return self._opened
