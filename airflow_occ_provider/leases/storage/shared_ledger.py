"""The ledger in a shared object: changes of several threads go in one write."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.ledger import Change, Ledger, LedgerFormatError
from airflow_occ_provider.leases.storage.patience import Backoff, Patience
from airflow_occ_provider.leases.storage.shared_object import (
    SharedObject,
    SupersededError,
    UnansweredError,
)
from airflow_occ_provider.leases.store import NodeGoneError, NodeTakenError, NodeVersionError

_Answer = TypeVar("_Answer")
_BURST = 4  # writes that are not gathered
_FULL = 6  # changes that do not wait for more; a triggerer has eight threads for them


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
        self._pace, self._backoff = _Pace(gather_s), Backoff(shared.place, timeout_s)
        self._told = self._ledger
        self.on_seen: Callable[[Ledger], None] = lambda _: None
        """Called with each new ledger, in the thread that read or wrote it."""

    def current(self, age_s: float = 0.0) -> Ledger:
        """Return the ledger as it was at most some seconds before the call.

        :raises LockUnreachableError: if the storage does not answer in time.
        """
        patience, oldest_s = self._patience(), time.monotonic() - age_s
        with self._held(patience):
            while self.seen_s < oldest_s:
                with suppress(UnansweredError):
                    self._read(patience)
            return self._ledger

    def change(self, change: Change, *, is_urgent: bool = True) -> Ledger:
        """Make a change and return the ledger after it.

        Changes of threads that wait at the same time go in one write.

        :param change: of a node; what ``apply`` raises is raised here.
        :param is_urgent: whether it does not wait for those of other threads.
        :raises LockUnreachableError: if the storage does not answer in time.
        """
        pending, patience = _Pending(change), self._patience()
        with self._queued:
            self._changes.append(pending)
            self._queued.notify_all()
        try:
            if is_urgent or not self._is_gathered(pending):
                with self._held(patience):
                    with self._queued:
                        batch, self._changes = self._changes, []
                        if pending.is_made:
                            batch, self._changes = [], batch
                    self._make(batch, patience)
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

    def _make(self, batch: Sequence[_Pending], patience: Patience) -> None:
        """Make changes by one write; each then has its result or its error."""
        try:
            self._write(batch, patience)
        except BaseException as error:  # also a time-out of the task, by a signal
            told = error if isinstance(error, Exception) else patience.unreachable("interrupted")
            for pending in batch:
                pending.after, pending.error = None, told
            raise
        finally:
            with self._queued:
                for pending in batch:
                    pending.is_made = True
                self._queued.notify_all()

    def _write(self, batch: Sequence[_Pending], patience: Patience) -> None:
        mark, first = uuid.uuid4().hex[:16], Ledger.empty(time.time_ns())
        is_fresh, tries = False, 0
        while batch:
            try:
                if tries or not self._tag or time.monotonic() - self.seen_s > self._fresh_s:
                    self._read(patience)
                    is_fresh = True
                tries += 1
                if mark in self._ledger.writes:
                    return  # it was carried out, and the answer lost
                base = self._ledger if self._tag else first
                after = _applied(batch, base)
                if after is not base:
                    self._put(after.written(mark), patience)
                if after is not base or is_fresh:
                    return  # else errors alone, of a ledger that may be old
            except SupersededError as error:
                patience.pause(error)
            except UnansweredError:
                tries += 1

    def _read(self, patience: Patience) -> None:
        """Read the object unless it is unchanged."""
        began_s, found = self._asked(patience, lambda: self._shared.read(self._tag))
        if found is not None:
            self._ledger, self._tag = self._decoded(found.data), found.tag
        self.seen_s = began_s

    def _put(self, ledger: Ledger, patience: Patience) -> None:
        """Replace the object that was read last."""
        self._pace.wrote()
        began_s, self._tag = self._asked(
            patience, lambda: self._shared.write(ledger.encode(), self._tag)
        )
        self._ledger, self.seen_s = ledger, began_s

    def _asked(self, patience: Patience, request: Callable[[], _Answer]) -> tuple[float, _Answer]:
        """Return the time before a request, and its answer; there is a pause after one without."""
        patience.wait_until(self._backoff.resume_s, self._backoff.reason)
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
    def _held(self, patience: Patience) -> Iterator[None]:
        if not self._busy.acquire(timeout=patience.left_s):
            raise patience.unreachable(self._backoff.reason or "other threads wait for it")
        try:
            yield
        finally:
            ledger, is_new = self._ledger, self._ledger is not self._told
            self._told = ledger
            self._busy.release()
            if is_new:
                self.on_seen(ledger)

    def _patience(self) -> Patience:
        return Patience(self._timeout_s, self._shared.place)


def _applied(batch: Sequence[_Pending], ledger: Ledger) -> Ledger:
    """Return a ledger with changes, each of which is given its result or its error."""
    for pending in batch:
        pending.after = pending.error = None
        try:
            ledger = pending.after = pending.change.apply(ledger)
        except (NodeGoneError, NodeTakenError, NodeVersionError) as error:
            pending.error = error
    return ledger
