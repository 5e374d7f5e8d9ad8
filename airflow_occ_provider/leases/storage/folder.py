"""The shared object as a file of a local folder, for the processes of one host."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Self

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.storage.shared_object import (
    ObjectContent,
    SupersededError,
    UnansweredError,
)

_PAUSE_S = 0.01
_READ_WRITE = 0o666


class FolderObject:
    """A ``SharedObject`` in a file, replaced under a lock of the host's kernel.

    Each account that may write the folder may use it: its files get the folder's group and permissions,
    whatever the umask of the process is.

    :param path: of the file; its folder is made if it is missing.
    :param timeout_s: for the lock.
    """

    def __init__(self, path: Path, timeout_s: float = 10.0) -> None:
        self._path = path
        self._lock = path.with_name(f"{path.name}.lock")
        self._timeout_s = timeout_s
        self.place = str(path)

    def read(self, tag: str) -> ObjectContent | None:
        """Return the object, or ``None`` if it still has a known tag."""
        with self._translated():
            content = self._content()
        return None if tag and content.tag == tag else content

    def write(self, data: bytes, tag: str) -> str:
        """Replace the object, and return its new tag."""
        with self._translated():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                if self._content().tag != tag:
                    raise SupersededError(self.place)
                new = self._path.with_name(f"{self._path.name}.new")
                new.unlink(missing_ok=True)  # of a process that was killed, perhaps another account's
                with new.open("wb") as file:
                    self._share(file)
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                new.replace(self._path)
        return _tag(data)

    def beside(self, name: str) -> Self:
        """Return another file in the same folder."""
        return type(self)(self._path.with_name(name), self._timeout_s)

    def delete(self) -> None:
        """Delete the file and that of its lock, if they exist."""
        with self._translated():
            self._path.unlink(missing_ok=True)
            self._lock.unlink(missing_ok=True)

    def _content(self) -> ObjectContent:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return ObjectContent(b"", "")
        return ObjectContent(data, _tag(data))

    def _share(self, file: IO[bytes]) -> None:
        """Give an own file the group of its folder, and the permissions that accounts have there."""
        with suppress(PermissionError):  # another account's file, which that account has shared
            folder, number = self._path.parent.stat(), file.fileno()
            if os.fstat(number).st_gid != folder.st_gid and folder.st_mode & stat.S_IWGRP:
                with suppress(PermissionError):  # the account is no member of that group
                    os.fchown(number, -1, folder.st_gid)
            os.fchmod(number, folder.st_mode & _READ_WRITE | stat.S_IRUSR | stat.S_IWUSR)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock.open("ab") as file:
            self._share(file)
            take = partial(fcntl.flock, file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            try:
                bounded(take, BlockingIOError, within_s=self._timeout_s, pause_s=_PAUSE_S)
            except BlockingIOError:
                raise UnansweredError(f"{self._lock} is locked for {self._timeout_s:g} s") from None
            yield  # closing the file ends the lock

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise ConfigurationError(
                "lease_root",
                f"{error.filename} may not be written by this account",
                remedy="give the accounts of Airflow's processes one group, and that group the folder: "
                f"chgrp -R GROUP {self._path.parent}, then chmod -R g+rwXs,-t on it",
            ) from None
        except OSError as error:
            raise UnansweredError(str(error)) from None


def _tag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
