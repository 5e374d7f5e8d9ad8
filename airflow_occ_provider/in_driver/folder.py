"""The folder of an attempt, as its driver reaches it.

It is shipped with the runner: it runs on Python 3.7, and imports the standard library only.
"""

from __future__ import annotations

import abc
import contextlib
import os
import pathlib
import re
from collections.abc import Hashable
from typing import Any

REMOTE = re.compile(r"[a-zA-Z][\w+.-]*:")
# A file that is being written there is visible: it is replaced by a rename.
SHOWS_UNFINISHED_FILES = ("file", "hdfs", "viewfs", "webhdfs", "swebhdfs", "ofs", "o3fs")
# Else S3A removes markers of the folders above with each file, one more request.
FEW_REQUESTS = {"fs.s3a.directory.marker.retention": "keep"}
# By default S3A alone may try for many minutes. A poll comes again, so a request of it may fail soon.
SHORT_RETRIES = {
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "2",
    "fs.s3a.retry.throttle.limit": "4",
    "fs.s3a.connection.timeout": "10000",
    "fs.s3a.connection.establish.timeout": "5000",
    "fs.azure.io.retry.max.retries": "2",
    "fs.gs.http.max.retry": "2",
    "fs.gs.http.connect-timeout": "5000",
    "fs.gs.http.read-timeout": "10000",
    "ipc.client.connect.max.retries": "2",
    "ipc.client.connect.max.retries.on.timeouts": "2",
    "ipc.client.connect.timeout": "5000",
    "ipc.client.rpc-timeout.ms": "10000",
    "dfs.client.socket-timeout": "10000",
    "dfs.client.failover.max.attempts": "4",
}


class Folder(abc.ABC):
    """The files of one attempt, each of which is small and is written as a whole.

    An error of the storage is raised as it is.
    """

    is_remote = True
    """Whether what it does are requests."""

    @abc.abstractmethod
    def entries(self) -> dict[str, Hashable]:
        """Return the names of the files, each with a value that shows changes.

        In a storage whose times are whole seconds, the second of two changes within one is not visible.
        """

    @abc.abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the content of a file; ``None`` if there is none."""

    @abc.abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Replace a file; a reader sees the old or the new one."""

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""


class LocalFolder(Folder):
    """A folder of this host.

    :param path: of the folder.
    """

    is_remote = False

    def __init__(self, path: str) -> None:
        self.path = pathlib.Path(path)

    def entries(self) -> dict[str, Hashable]:
        """Return the names of the files, each with its inode and time."""
        entries: dict[str, Hashable] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path) as files:
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    status = file.stat()
                    entries[file.name] = status.st_ino, status.st_mtime_ns, status.st_size
        return entries

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; ``None`` if there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace a file; only its owner reads it."""
        part = self.path / part_of(name)
        descriptor = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        part.replace(self.path / name)

    def delete(self, name: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / name).unlink()


class HadoopFolder(Folder):
    """A folder of a storage that Hadoop reaches.

    Its file system is an instance of its own: the job may close the shared one.

    :param jvm: the driver's.
    :param configuration: Hadoop's, which is changed.
    :param url: of the folder.
    """

    def __init__(self, jvm: Any, configuration: Any, url: str) -> None:
        for key, value in {**SHORT_RETRIES, **FEW_REQUESTS}.items():
            configuration.set(key, value)
        self._jvm, self._configuration, self._url = jvm, configuration, url
        self._opened: Any = None
        self._listed: dict[str, Any] = {}

    def entries(self) -> dict[str, Hashable]:
        """Return the names of the files, each with its time and length, by one listing."""
        try:
            listing = self._file_system().listStatus(self._path())
        except Exception as error:
            if is_missing(error):
                return {}
            raise
        self._listed = {file.getPath().getName(): file for file in listing}
        return {name: (file.getModificationTime(), file.getLen()) for name, file in self._listed.items()}

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; ``None`` if there is none."""
        status = self._listed.pop(name, None)  # of the last listing; it is used once
        if status is not None:
            with contextlib.suppress(Exception):  # replaced since, or this release cannot do so
                opening = self._file_system().openFile(status.getPath()).withFileStatus(status)
                return self._content(opening.build().get())
        try:
            stream = self._file_system().open(self._path(name))
        except Exception as error:
            if is_missing(error):
                return None
            raise
        return self._content(stream)

    def _content(self, stream: Any) -> bytes:
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def write(self, name: str, content: bytes) -> None:
        """Replace a file; a reader sees the old or the new one."""
        files, path = self._file_system(), self._path(name)
        shows = files.getUri().getScheme() in SHOWS_UNFINISHED_FILES
        written = self._path(part_of(name)) if shows else path
        stream = files.create(written, True)
        try:
            stream.write(content)
        finally:
            stream.close()
        if shows:
            self._rename(written, path)

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._file_system().delete(self._path(name), False)

    def _path(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._url}/{name}" if name else self._url)

    def _file_system(self) -> Any:
        if self._opened is None:
            self._opened = self._jvm.org.apache.hadoop.fs.FileSystem.newInstance(
                self._path().toUri(), self._configuration
            )
            self._opened.setWriteChecksum(False)
        return self._opened

    def _rename(self, written: Any, path: Any) -> None:
        """Rename over an existing file, which ``FileSystem.rename`` does not."""
        replaces = self._jvm.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        how = self._jvm.java.lang.reflect.Array.newInstance(replaces.getDeclaringClass(), 1)
        how[0] = replaces
        context = self._jvm.org.apache.hadoop.fs.FileContext
        context.getFileContext(path.toUri(), self._configuration).rename(written, path, how)


def part_of(name: str) -> str:
    """Return the name of a file while it is written: not one of the contract."""
    return f".{name}.part"


def is_missing(error: Exception) -> bool:
    """Return whether an error of Hadoop says that a file or folder is not there."""
    of_java = getattr(error, "java_exception", None)
    return of_java is not None and of_java.getClass().getName() == "java.io.FileNotFoundException"


def is_local(url: str) -> bool:
    """Return whether a folder is named by a path of this host."""
    return not REMOTE.match(url)
