"""The object that holds a ledger: its protocol, its check, and a local file."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self

from airflow_occ_provider.bounded import bounded
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError, OccError

_RACES, _RACERS = 64, 16
_TRIES = 3
_INSTEAD = (
    "keep the leases in another storage, such as Amazon S3, Google Cloud Storage, Azure or a local "
    "folder, or use a connection of ZooKeeper or of a Hive metastore"
)
_PAUSE_S = 0.01
_READ_WRITE = 0o666


class SupersededError(Exception):
    """The object has another tag by now: nothing was written."""


class UnansweredError(Exception):
    """The storage gave no answer; a write may have been carried out."""


class ObjectContent(NamedTuple):
    """What was read.

    :param data: the object's bytes; empty if there is no object.
    :param tag: changes with the object; empty if there is none.
    """

    data: bytes
    tag: str


class SharedObject(Protocol):
    """One object, which clients replace by compare-and-set.

    Every call ends in a bounded time. It raises ``ConfigurationError`` if the storage refuses the
    credentials, or cannot replace on a condition.
    """

    place: str

    def read(self, tag: str) -> ObjectContent | None:
        """Return the object, or ``None`` if it still has a known tag.

        :param tag: one that was seen; empty for none.
        :raises UnansweredError: if the storage does not answer.
        """

    def write(self, data: bytes, tag: str) -> str:
        """Replace the object, and return its new tag.

        :param tag: the one that it must have; empty if there must be no object.
        :raises SupersededError: if it has another one.
        :raises UnansweredError: if the storage does not answer: it may have been carried out.
        """


class PlacedObject(SharedObject, Protocol):
    """A shared object in a folder, in which a client may make and delete others."""

    def beside(self, name: str) -> Self:
        """Return another object in the same folder."""

    def delete(self) -> None:
        """Delete the object, if it exists.

        :raises UnansweredError: if the storage does not answer.
        """


def check_conditions(shared: PlacedObject, *, race_s: float = 10.0) -> str:
    """Check that of several writes on one condition exactly one is carried out.

    It writes a new object beside the given one, and deletes it afterwards: at most 1100 requests.

    :param shared: the object that will hold the leases; it is not touched.
    :param race_s: seconds after which no further race begins.
    :return: a sentence about what was seen.
    :raises ConfigurationError: of the field ``lease_root``, if the storage does not refuse such a write,
        refuses one that it must carry out, or carries out two; of ``credentials``, if it refuses those.
    :raises LockUnreachableError: if the storage does not answer.
    """

    def races() -> int:
        with _probe(shared) as probe:
            tag = _check_steps(probe)
            return _check_races(probe, tag, time.monotonic() + race_s)

    try:
        count = bounded(races, UnansweredError, tries=_TRIES)
    except UnansweredError as error:
        raise LockUnreachableError(
            f"{shared.place} did not answer {_TRIES} times: {error}",
            remedy="check the storage and the way to it",
        ) from error
    return f"{shared.place}: in {count} races of {_RACERS} writes, one was carried out each time."


@contextmanager
def _probe(shared: PlacedObject) -> Iterator[PlacedObject]:
    probe = shared.beside(f"check-{uuid.uuid4().hex}.json")
    try:
        yield probe
    finally:
        with suppress(UnansweredError, OccError):
            probe.delete()


def _check_steps(probe: SharedObject) -> str:
    """Check single writes; return the tag of the object."""
    try:
        first = probe.write(b"created", "")
    except SupersededError:
        raise _inexact(probe, "it refused to create an object that did not exist") from None
    if _is_written(probe, b"created again", ""):
        raise _inexact(probe, "it created an object that existed (If-None-Match is ignored)")
    try:
        second = probe.write(b"replaced", first)
    except SupersededError:
        raise _inexact(
            probe, "it refused to replace an object that was unchanged (If-Match never matches)"
        ) from None
    if second == first or _is_written(probe, b"replaced again", first):
        raise _inexact(probe, "it replaced an object that had changed (If-Match is ignored)")
    content = probe.read("")
    if content is None or content.data != b"replaced":
        raise _inexact(probe, "it did not return what was written last")
    return second


def _check_races(probe: SharedObject, tag: str, deadline_s: float) -> int:
    """Let threads replace the object at the same time; return the number of races."""
    with ThreadPoolExecutor(_RACERS) as pool:
        for race in range(_RACES):
            start = threading.Barrier(_RACERS)
            contents = [b"%d of %d" % (racer, race) for racer in range(_RACERS)]
            tags = list(pool.map(partial(_raced, probe, tag, start), contents))
            winners = [data for data, new in zip(contents, tags, strict=True) if new]
            content = probe.read("")
            if len(winners) > 1 or content is None or (winners and content.data != winners[0]):
                raise _inexact(
                    probe,
                    f"in race {race + 1} it carried out {len(winners)} of {_RACERS} writes on one "
                    "condition (If-Match is not atomic)",
                )
            tag = content.tag
            if time.monotonic() > deadline_s:
                return race + 1
    return _RACES


def _raced(probe: SharedObject, tag: str, start: threading.Barrier, data: bytes) -> str:
    start.wait()
    try:
        return probe.write(data, tag)
    except (SupersededError, UnansweredError):
        return ""


def _is_written(probe: SharedObject, data: bytes, tag: str) -> bool:
    try:
        probe.write(data, tag)
    except SupersededError:
        return False
    return True


def _inexact(probe: SharedObject, fault: str) -> ConfigurationError:
    return ConfigurationError(
        "lease_root", f"{probe.place} cannot keep leases: {fault}", remedy=_INSTEAD
    )


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
