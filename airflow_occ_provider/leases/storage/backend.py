"""Leases in a folder or a bucket: their ledger in a shared object.

Changes of several threads go in one write.
"""

from __future__ import annotations

import logging
import posixpath
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError, install_extra
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.ledger import Change, Ledger, LedgerFormatError, LedgerStore, fresh_s
from airflow_occ_provider.leases.storage.address import (
    AzureAccess,
    GcsAccess,
    LeasePace,
    S3Access,
    StorageAccess,
    parse_root,
)
from airflow_occ_provider.leases.storage.objects import (
    FolderObject,
    SharedObject,
    SupersededError,
    UnansweredError,
)
from airflow_occ_provider.leases.store import NodeGoneError, NodeTakenError, NodeVersionError

if TYPE_CHECKING:
    from airflow_occ_provider.leases.backend import HudiLock
    from airflow_occ_provider.leases.queue import Queue
    from airflow_occ_provider.leases.storage.bucket import BucketObject
    from airflow_occ_provider.leases.storage.objects import PlacedObject


_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_OBJECT = "queue.json"
_NAMES: dict[type, str] = {
    S3Access: "S3",
    GcsAccess: "Google Cloud Storage",
    AzureAccess: "Azure",
}
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 5.0
_CONTESTED_PAUSE_S = 1.0
_TRIES_PER_CALL = 4
_TOLD_AFTER = 4
_BURST = 4  # writes that are not gathered
_FULL = 6  # changes that do not wait for more; a triggerer has eight threads for them
_GATHERS_PER_TTL = 60  # a renewal that waits to be gathered is late by a part of its period at most


@dataclass(eq=False)
class _Pending:
    """A change that a thread waits for, and what became of it."""

    change: Change
    after: Ledger | None = None
    error: Exception | None = None
    is_made: bool = False  # until then, the others are of a write that may fail


@dataclass
class _Pace:
    """The times of writes: some at once, and then one in each interval."""

    gather_s: float
    next_s: float = float("-inf")

    @property
    def delay_s(self) -> float:
        ahead_s = self.next_s - time.monotonic() - (_BURST - 1) * self.gather_s
        return min(max(ahead_s, 0.0), self.gather_s)

    def wrote(self) -> None:
        self.next_s = max(self.next_s, time.monotonic()) + self.gather_s


class SharedLedger:
    """The ledger in a shared object, as this process knows it. Threads may share it.

    :param shared: the object.
    :param timeout_s: for each call.
    :param gather_s: seconds that a change which is not urgent waits for others, after some writes.
    :param fresh_s: age in seconds from which a ledger is read again before it is changed.
    """

    def __init__(
        self,
        shared: SharedObject,
        timeout_s: float,
        *,
        gather_s: float = 0.0,
        fresh_s: float = 0.0,
    ) -> None:
        self._shared = shared
        self._timeout_s, self._fresh_s = timeout_s, fresh_s
        self._ledger, self._tag, self.seen_s = Ledger(0), "", float("-inf")
        self._busy = threading.Lock()  # held for each request, and for what is known of the object
        self._queued = threading.Condition()
        self._changes: list[_Pending] = []
        self._pace, self._backoff = _Pace(gather_s), _Backoff(shared.place, timeout_s)
        self._told = self._ledger
        self.on_seen: Callable[[Ledger], None] = lambda _: None
        """Called with each new ledger, in the thread that read or wrote it."""

    def current(self, age_s: float = 0.0) -> Ledger:
        """Return the ledger as it was at most some seconds before the call.

        :raises LockUnreachableError: if the storage does not answer in time.
        """
        call_time, oldest_s = self._call_time(), time.monotonic() - age_s
        with self._held(call_time):
            while self.seen_s < oldest_s:
                with suppress(UnansweredError):
                    self._read(call_time)
            return self._ledger

    def change(self, change: Change, *, is_urgent: bool = True) -> Ledger:
        """Make a change and return the ledger after it.

        Changes of threads that wait at the same time go in one write.

        :param change: of a node; what ``apply`` raises is raised here.
        :param is_urgent: whether it does not wait for those of other threads.
        :raises LockUnreachableError: if the storage does not answer in time.
        """
        pending, call_time = _Pending(change), self._call_time()
        with self._queued:
            self._changes.append(pending)
            self._queued.notify_all()
        try:
            if is_urgent or not self._is_gathered(pending):
                with self._held(call_time):
                    with self._queued:
                        batch, self._changes = self._changes, []
                        if pending.is_made:
                            batch, self._changes = [], batch
                    self._make(batch, call_time)
        finally:
            with self._queued, suppress(ValueError):
                self._changes.remove(pending)
        if pending.error or pending.after is None:
            raise pending.error or AssertionError("the change was not made")
        return pending.after

    def close(self) -> None:
        """Do nothing: a storage has no connection to close."""

    def _is_gathered(self, pending: _Pending) -> bool:
        """Wait for changes of other threads; return whether one of these made this change."""
        with self._queued:
            self._queued.wait_for(
                lambda: pending.is_made or len(self._changes) >= _FULL, self._pace.delay_s
            )
            return pending.is_made

    def _make(self, batch: Sequence[_Pending], call_time: _CallTime) -> None:
        """Make changes by one write; each then has its result or its error."""
        try:
            self._write(batch, call_time)
        except BaseException as error:  # also a time-out of the task, by a signal
            told = error if isinstance(error, Exception) else call_time.unreachable("interrupted")
            for pending in batch:
                pending.after, pending.error = None, told
            raise
        finally:
            with self._queued:
                for pending in batch:
                    pending.is_made = True
                self._queued.notify_all()

    def _write(self, batch: Sequence[_Pending], call_time: _CallTime) -> None:
        mark, first = uuid.uuid4().hex[:16], Ledger.empty(time.time_ns())
        is_fresh, tries = False, 0
        while batch:
            try:
                if tries or not self._tag or time.monotonic() - self.seen_s > self._fresh_s:
                    self._read(call_time)
                    is_fresh = True
                tries += 1
                if mark in self._ledger.writes:
                    return  # it was carried out, and the answer lost
                base = self._ledger if self._tag else first
                after = _applied(batch, base)
                if after is not base:
                    self._put(after.written(mark), call_time)
                if after is not base or is_fresh:
                    return  # else errors alone, of a ledger that may be old
            except SupersededError as error:
                call_time.pause(error)
            except UnansweredError:
                tries += 1

    def _read(self, call_time: _CallTime) -> None:
        """Read the object unless it is unchanged."""
        began_s, content = self._asked(call_time, lambda: self._shared.read(self._tag))
        if content is not None:
            self._ledger = self._decoded(content.data)
            self._tag = content.tag
        self.seen_s = began_s

    def _put(self, ledger: Ledger, call_time: _CallTime) -> None:
        """Replace the object that was read last."""
        self._pace.wrote()
        began_s, self._tag = self._asked(
            call_time, lambda: self._shared.write(ledger.encode(), self._tag)
        )
        self._ledger, self.seen_s = ledger, began_s

    def _asked(self, call_time: _CallTime, request: Callable[[], _Answer]) -> tuple[float, _Answer]:
        """Return the time before a request, and its answer; there is a pause after one without."""
        call_time.wait_until(self._backoff.resume_s, self._backoff.reason)
        began_s = time.monotonic()
        try:
            answer = request()
        except UnansweredError as error:
            self._backoff.failed(error)
            raise
        except SupersededError:
            self._backoff.answered()
            raise
        self._backoff.answered()
        return began_s, answer

    def _decoded(self, data: bytes) -> Ledger:
        try:
            return Ledger.decode(data) if data else Ledger(0)
        except LedgerFormatError as error:
            raise ConfigurationError(
                "lease_root",
                f"{self._shared.place}: {error}",
                remedy="name another place, or run the same release of this provider everywhere",
            ) from error

    @contextmanager
    def _held(self, call_time: _CallTime) -> Iterator[None]:
        if not self._busy.acquire(timeout=call_time.left_s):
            raise call_time.unreachable(self._backoff.reason or "other threads wait for it")
        try:
            yield
        finally:
            ledger, is_new = self._ledger, self._ledger is not self._told
            self._told = ledger
            self._busy.release()
            if is_new:
                self.on_seen(ledger)

    def _call_time(self) -> _CallTime:
        return _CallTime(self._timeout_s, self._shared.place)


def _applied(batch: Sequence[_Pending], ledger: Ledger) -> Ledger:
    """Return a ledger with changes, each of which is given its result or its error."""
    for pending in batch:
        pending.after = pending.error = None
        try:
            ledger = pending.after = pending.change.apply(ledger)
        except (NodeGoneError, NodeTakenError, NodeVersionError) as error:
            pending.error = error
    return ledger


@dataclass
class _CallTime:
    """The time of one call.

    :param timeout_s: seconds that the call may take.
    :param place: of the storage, for messages.
    """

    timeout_s: float
    place: str
    _pause_s: float = field(init=False, default=_FIRST_PAUSE_S)
    _deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline_s = time.monotonic() + self.timeout_s

    @property
    def left_s(self) -> float:
        """The seconds left, never less than a millisecond."""
        return max(self._deadline_s - time.monotonic(), 0.001)

    def pause(self, reason: object) -> None:
        """Wait after another client was faster, each time longer.

        :raises LockUnreachableError: if there is no time for another try.
        """
        self.wait_until(time.monotonic() + _random(self._pause_s), reason)
        self._pause_s = min(2 * self._pause_s, _CONTESTED_PAUSE_S)

    def wait_until(self, when_s: float, reason: object) -> None:
        """Wait until a time of the monotonic clock.

        :raises LockUnreachableError: if that is too late for this call.
        """
        if when_s >= self._deadline_s:
            raise self.unreachable(reason)
        time.sleep(max(0.0, when_s - time.monotonic()))

    def unreachable(self, reason: object) -> LockUnreachableError:
        """Return the error of a call that ends without an answer."""
        return LockUnreachableError(
            f"{self.place} did not answer in {self.timeout_s:g} s: {reason}",
            remedy="check the storage and the way to it",
        )


class _Backoff:
    """The pauses of all threads together while a storage fails or refuses; told once.

    :param place: of the storage.
    :param timeout_s: seconds of a call, in which there are some tries.
    """

    def __init__(self, place: str, timeout_s: float) -> None:
        self._place = place
        self._longest_s = min(_LONGEST_PAUSE_S, timeout_s / _TRIES_PER_CALL)
        self._failures, self._began_s, self._pause_s = 0, 0.0, _FIRST_PAUSE_S
        self.resume_s = float("-inf")
        """The time of the monotonic clock before which no request is sent."""
        self.reason: Exception | None = None

    def failed(self, error: Exception) -> None:
        """Note a request without an answer."""
        now_s = time.monotonic()
        if not self._failures:
            self._began_s, self._pause_s = now_s, _FIRST_PAUSE_S
        self._failures, self.reason = self._failures + 1, error
        self.resume_s = now_s + _random(self._pause_s)
        self._pause_s = min(2 * self._pause_s, self._longest_s)
        if self._failures == _TOLD_AFTER:
            _log.warning("%s does not answer; it is asked again: %s", self._place, error)

    def answered(self) -> None:
        """Note an answer."""
        if self._failures >= _TOLD_AFTER:
            away_s = time.monotonic() - self._began_s
            _log.warning("%s answers again after %.0f s.", self._place, away_s)
        self._failures, self.resume_s, self.reason = 0, float("-inf"), None


def _random(pause_s: float) -> float:
    return pause_s * random.uniform(0.5, 1)  # noqa: S311 - no secret


class StorageStore(LedgerStore):
    """The ``Store`` in a shared object. Threads may share it.

    :param shared: the object.
    :param poll_s: the most seconds between two looks for deletions, while one is waited for.
    :param timeout_s: for each call.
    :param gather_s: seconds between two writes of replacements, after some without a pause.
    """

    def __init__(
        self,
        shared: SharedObject,
        poll_s: float = 1.0,
        timeout_s: float = 10.0,
        gather_s: float = 0.0,
    ) -> None:
        ledger = SharedLedger(shared, timeout_s, gather_s=gather_s, fresh_s=fresh_s(poll_s))
        super().__init__(ledger, poll_s)


@dataclass(frozen=True, slots=True)
class StorageLeases:
    """Leases in a folder: a ``LeaseBackend``.

    :param root: the folder's URL, or its path on this host.
    :param access: the way to its storage; ``None`` for the process's own credentials.
    :param ttls: of the leases; ``None`` for those that suit the storage.
    :param poll_s: the most seconds between two looks; ``None`` for what suits the storage.
    :param timeout_s: seconds for each request.
    """

    root: str
    access: StorageAccess | None = None
    ttls: Terms | None = None
    poll_s: int | None = None
    timeout_s: float = 10.0

    @property
    def pace(self) -> LeasePace:
        """How often the queue looks and writes, by default."""
        return parse_root(self.root).pace

    def beside(self, _lock: HudiLock, /) -> StorageLeases:
        """Return itself: no lock of Hudi is in a folder of leases."""
        return self

    def terms(self) -> Terms:
        """Return the TTLs of the leases, by default those of the folder's storage."""
        return self.ttls or self.pace.terms

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        from airflow_occ_provider.leases.queue import Queue

        pace = self.pace
        gather_s = min(pace.gather_s, self.terms().ttl_ms / 1000 / _GATHERS_PER_TTL)
        poll_s = self.poll_s or pace.poll_s
        return Queue(StorageStore(self._opened(), poll_s, self.timeout_s, gather_s))

    def validate(self) -> None:
        """Check the values, and that the client is installed."""
        self._opened()

    def test(self) -> str:
        """Check that the storage refuses a write whose condition does not hold."""
        from airflow_occ_provider.leases.storage.objects import check_conditions

        return check_conditions(self._opened(), race_s=self.timeout_s)

    def _opened(self) -> PlacedObject:
        """Return the object that holds the leases; nothing is sent to it yet."""
        if ".hoodie" in parse_root(self.root).folder.split("/"):
            raise ConfigurationError(
                "lease_root",
                f"{self.root} lies in a table's .hoodie, which is Hudi's",
                remedy="enter a folder outside of all tables",
            )
        return open_shared_object(self.root, self.access, timeout_s=self.timeout_s)


def open_shared_object(
    root: str, access: StorageAccess | None = None, *, timeout_s: float = 10.0
) -> BucketObject | FolderObject:
    """Return the object that holds the leases of a root; nothing is sent yet.

    :param root: as for ``parse_root``: the folder of the object.
    :param access: of the kind that the root's store needs; ``None`` for the process's own credentials.
        Ignored for a local folder.
    :param timeout_s: seconds for each request. Requests are not repeated by the client.
    :raises ConfigurationError: if a value is wrong, or the client is not installed.
    """
    named = parse_root(root)
    if named.kind is None:
        return FolderObject(Path(named.folder, _OBJECT), timeout_s)
    credentials = named.kind() if access is None else access
    if not isinstance(credentials, named.kind):
        raise ConfigurationError(
            "credentials",
            f"they are of {_NAMES[type(credentials)]}, but {root} is of {_NAMES[named.kind]}",
            remedy="use a connection of that storage",
        )
    try:
        from airflow_occ_provider.leases.storage.bucket import open_bucket
    except ImportError as error:
        raise ConfigurationError(
            "lease_root",
            f"{root} needs a client that is not installed ({error})",
            remedy=install_extra("storage"),
        ) from error
    return open_bucket(named, credentials, posixpath.join(named.folder, _OBJECT), timeout_s)
