"""The files of one table, read through fsspec; every request has a time-out."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from airflow_occ_provider.errors import (
    MetadataCorruptError,
    OccError,
    StorageDeniedError,
    StorageStalledError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.storage.address import fsspec_url
from airflow_occ_provider.storage.listing import (
    Listing,
    is_s3,
    list_changes,
    list_folder,
    list_objects,
    may_list_changes,
    read_file,
)

_REMEDY = "check that the worker can reach the storage and has permission to read it"
# The names of HTTP's status in errors of gcsfs, adlfs and others.
_STATUS = ("code", "status_code", "status")
_DENIED = {"401", "403"}
_DENIED_BY_HADOOP = "org.apache.hadoop.security.AccessControlException"
_AT_ONCE = 16
_MOST_ABANDONED = 32  # of one storage, in a process: each one keeps a thread
_T = TypeVar("_T")
_K = TypeVar("_K")


class TableFolder:
    """The files below a table's base path, to list, read and remove.

    Names are relative to the base path. One request may take ``timeout_s``. Each method raises
    ``TableUnreadableError`` if the storage cannot be read.

    ``damaged`` has the files of the timeline that cannot be decoded, with what is wrong with them, if a
    diagnosis reads the table; else it is ``None``, and such a file is an error.
    """

    damaged: dict[str, str] | None = None

    def __init__(self, scheme: str, path: str, file_system: Any, timeout_s: float) -> None:
        self.scheme, self.path = scheme, path
        self.file_system = file_system
        self.timeout_s = timeout_s
        self._root = str(file_system._strip_protocol(fsspec_url(scheme, path))).rstrip("/")
        self._storage = f"{scheme}:{self._root.lstrip('/').partition('/')[0]}"

    def read(self, name: str) -> bytes | None:
        """Return a file's content; ``None`` if it does not exist."""
        return self.ask(name, partial(read_file, self.file_system))

    def listing(self, folder: str) -> Listing:
        """List a folder in one request a page; empty if it does not exist."""
        listing = self.ask(folder, lambda path: list_folder(self.file_system, path))
        if listing is None:
            return Listing()
        stat = listing.modified  # may read the status of the file

        def modified(name: str) -> int | None:
            return stat(name) if _in_request() else self.ask(f"{folder}/{name}", lambda _: stat(name))

        return replace(listing, modified=modified)

    def changes(self, folder: str, last: Listing, timeline: Timeline) -> Listing | None:
        """List what may have changed in a timeline; ``None`` if that is not enough."""
        if not may_list_changes(self.file_system, f"{self._root}/{folder}", last, timeline):
            return None
        return self.ask(folder, lambda path: list_changes(self.file_system, path, last, timeline))

    def times(self, folder: str) -> dict[str, int]:
        """Return the epoch milliseconds of the last write of each file in a folder.

        This takes one listing, and on a local disk also the status of each file.
        """

        def times(path: str) -> dict[str, int]:
            listing = list_folder(self.file_system, path)
            each = ((name, listing.modified(name)) for name in listing.names)
            return {name: written for name, written in each if written is not None}

        return self.ask(folder, times) or {}

    def heartbeats(self) -> dict[str, int]:
        """Return the epoch milliseconds of each heartbeat's last tick, by requested time."""
        ticks = self.times(".hoodie/.heartbeat")
        return {name: ticked for name, ticked in ticks.items() if name.isdigit()}

    def below(self, folder: str) -> list[str]:
        """List all files below a folder, by their paths relative to it."""

        def find(path: str) -> list[str]:
            if is_s3(self.file_system):
                return [f"{path}/{name}" for name in list_objects(self.file_system, path, delimiter="")]
            self.file_system.invalidate_cache()  # of the folders below, too
            paths: list[str] = self.file_system.find(path)
            return paths

        paths = self.ask(folder, find) or ()
        start = len(f"{self._root}/{folder}/")
        return [path[start:] for path in paths if path[start:] and not path.endswith("/")]

    def remove(self, name: str) -> bool:
        """Delete a file; ``False`` if it did not exist."""

        def remove(path: str) -> bool:
            if not self.file_system.exists(path):  # object stores also delete missing files
                return False
            self.file_system.rm_file(path)
            return True

        return bool(self.ask(name, remove))

    def ask(self, name: str, call: Callable[[str], _T]) -> _T | None:
        """Make one request; ``None`` if the file or folder does not exist.

        ``call`` is given the path on the file system. Requests that it makes through this object share
        the time-out.

        :raises MetadataCorruptError: if the name leads out of the table.
        :raises StorageStalledError: if the request takes longer than the time-out.
        :raises StorageDeniedError: if the storage refuses these credentials.
        :raises TableUnreadableError: if the request fails.
        """
        if ".." in name.split("/"):
            raise MetadataCorruptError(
                f"{self.path}: its metadata names the path {name!r}, which is outside of the table",
                remedy="Hudi does not write such a path: find out what wrote to the .hoodie folder",
            )
        path = f"{self._root}/{name}" if name else self._root
        try:
            return _within(self.timeout_s, lambda: call(path), self._storage)
        except FileNotFoundError:
            return None
        except OccError:
            raise
        except TimeoutError as error:
            raise StorageStalledError(
                f"{self.path}/{name}: the storage did not answer in {self.timeout_s:g} s",
                remedy="check the storage and the network; the request can be repeated",
            ) from error
        except Exception as error:
            kind = StorageDeniedError if _is_denied(error) else TableUnreadableError
            raise kind(
                f"{self.path}/{name} cannot be read: {type(error).__name__}: {error}", remedy=_REMEDY
            ) from error


def _is_denied(error: Exception) -> bool:
    """Whether the storage refuses these credentials; expired ones are renewed."""
    status = next((getattr(error, name, None) for name in _STATUS if hasattr(error, name)), None)
    text = str(error)
    denied = isinstance(error, PermissionError) or str(status) in _DENIED or _DENIED_BY_HADOOP in text
    return denied and "expired" not in text.lower()


class _Request(threading.Thread):
    """One request, in a daemon thread: a stalled storage cannot block the exit."""


def _in_request() -> bool:
    return isinstance(threading.current_thread(), _Request)


def map_concurrently(call: Callable[[_K], _T], keys: Iterable[_K]) -> dict[_K, _T]:
    """Make one request per key in several threads; return the results by key.

    :raises Exception: the first error; no request starts after it.
    """
    waiting = deque(dict.fromkeys(keys))
    answers = dict[_K, _T]()
    failures = list[BaseException]()

    def run() -> None:
        while waiting and not failures:
            try:
                key = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                answers[key] = call(key)
            except BaseException as error:  # noqa: BLE001 - raised by the caller
                failures.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(min(_AT_ONCE, len(waiting)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return answers


def _within(timeout_s: float, call: Callable[[], _T], storage: str) -> _T:
    if _in_request():
        return call()
    if _abandoned.are_too_many(storage):
        raise TimeoutError  # at once: a request that hangs cannot be ended, and keeps its thread
    answer: Future[_T] = Future()

    def run() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            answer.set_exception(error)

    _Request(target=run, daemon=True, name="hudi-storage").start()
    try:
        return answer.result(timeout_s)
    finally:
        _abandoned.add(storage, answer)


class _Abandoned:
    """The requests that have timed out and whose threads still wait, by storage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answers: dict[str, list[Future[Any]]] = {}

    def add(self, storage: str, answer: Future[Any]) -> None:
        """Add a request, unless it has been answered."""
        if not answer.done():
            with self._lock:
                self._answers.setdefault(storage, []).append(answer)

    def are_too_many(self, storage: str) -> bool:
        """Whether no further request may be made until one of them is answered."""
        with self._lock:
            waiting = [answer for answer in self._answers.pop(storage, ()) if not answer.done()]
            if waiting:
                self._answers[storage] = waiting
            return len(waiting) >= _MOST_ABANDONED


_abandoned = _Abandoned()
