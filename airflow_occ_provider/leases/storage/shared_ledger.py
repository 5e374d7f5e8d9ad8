"""The ledger in a shared object: changes of several threads go in one write."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.storage.ledger import Ledger, LedgerFormatError
from airflow_occ_provider.leases.storage.shared_object import (
    SharedObject,
    SupersededError,
    UnansweredError,
)
from airflow_occ_provider.leases.store import NodeGoneError, NodeTakenError, NodeVersionError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0


@dataclass(eq=False)
class _Change:
    """A change that a thread waits for, and what became of it."""

    apply: Callable[[Ledger], Ledger]
    after: Ledger | None = None
    error: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self.after is None and self.error is None


@dataclass
class _Patience:
    """Pauses that grow, until a deadline."""

    timeout_s: float
    place: str
    pause_s: float = _FIRST_PAUSE_S
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.timeout_s

    @property
    def left_s(self) -> float:
        return max(self.deadline - time.monotonic(), 0.001)

    def pause(self, error: Exception) -> None:
        """Wait before another try.

        :raises LockUnreachableError: if there is no time for one.
        """
        if self.left_s <= self.pause_s:
            raise self.unreachable(error) from error
        time.sleep(self.pause_s * random.uniform(0.5, 1))  # noqa: S311 - no secret
        self.pause_s = min(2 * self.pause_s, _LONGEST_PAUSE_S)

    def unreachable(self, reason: object) -> LockUnreachableError:
        return LockUnreachableError(
            f"{self.place} did not answer in {self.timeout_s:g} s: {reason}",
            remedy="check the storage and the way to it",
        )


class SharedLedger:
    """The ledger in a shared object, as this process knows it. Threads may share it.

    :param shared: the object.
    :param timeout_s: for each call.
    """

    def __init__(self, shared: SharedObject, timeout_s: float) -> None:
        self._shared = shared
        self._timeout_s = timeout_s
        self._ledger, self._tag, self._seen_s = Ledger(0), "", float("-inf")
        self._busy = threading.Lock()  # held for each request, and for what is known of the object
        self._queued = threading.Lock()
        self._changes: list[_Change] = []

    def current(self, age_s: float = 0.0) -> Ledger:
        """Return the ledger as it was at most some seconds before the call.

        :raises LockUnreachableError: if the storage does not answer in time.
        """
        patience, oldest_s = self._patience(), time.monotonic() - age_s
        while True:
            try:
                with self._held(patience):
                    if self._seen_s < oldest_s:
                        self._read()
                    return self._ledger
            except UnansweredError as error:
                patience.pause(error)

    def change(self, apply: Callable[[Ledger], Ledger]) -> Ledger:
        """Make a change and return the ledger after it.

        Changes of threads that wait at the same time go in one write.

        :param apply: returns the changed ledger; what it raises for a node is raised here.
        :raises LockUnreachableError: if the storage does not answer in time.
        """
        change, patience = _Change(apply), self._patience()
        with self._queued:
            self._changes.append(change)
        try:
            with self._held(patience):
                with self._queued:
                    batch, self._changes = (self._changes, []) if change.is_open else ([], self._changes)
                self._make(batch, patience)
        finally:
            with self._queued, suppress(ValueError):
                self._changes.remove(change)
        if change.error or change.after is None:
            raise change.error or AssertionError("the change was not made")
        return change.after

    def _make(self, batch: Sequence[_Change], patience: _Patience) -> None:
        """Make changes by one write; each then has its result or its error."""
        try:
            self._write(batch, patience)
        except BaseException as error:  # also a time-out of the task, by a signal
            told = error if isinstance(error, Exception) else patience.unreachable("interrupted")
            for change in batch:
                change.after, change.error = None, told
            raise

    def _write(self, batch: Sequence[_Change], patience: _Patience) -> None:
        mark, first = uuid.uuid4().hex[:16], Ledger.empty(time.time_ns())
        is_fresh, tries = False, 0
        while batch:
            try:
                if tries or not self._tag:
                    self._read()
                    is_fresh = True
                tries += 1
                if mark in self._ledger.writes:
                    return  # it was carried out, and the answer lost
                base = self._ledger if self._tag else first
                after = _applied(batch, base)
                if after is not base:
                    self._put(after.written(mark))
                if after is not base or is_fresh:
                    return  # else errors alone, of a ledger that may be old
            except (SupersededError, UnansweredError) as error:
                patience.pause(error)

    def _read(self) -> None:
        """Read the object unless it is unchanged."""
        began_s = time.monotonic()
        found = self._shared.read(self._tag)
        if found is not None:
            self._ledger, self._tag = self._decoded(found.data), found.tag
        self._seen_s = began_s

    def _put(self, ledger: Ledger) -> None:
        """Replace the object that was read last."""
        began_s = time.monotonic()
        self._tag = self._shared.write(ledger.encode(), self._tag)
        self._ledger, self._seen_s = ledger, began_s

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
    def _held(self, patience: _Patience) -> Iterator[None]:
        if not self._busy.acquire(timeout=patience.left_s):
            raise patience.unreachable("other threads wait for it")
        try:
            yield
        finally:
            self._busy.release()

    def _patience(self) -> _Patience:
        return _Patience(self._timeout_s, self._shared.place)


def _applied(batch: Sequence[_Change], ledger: Ledger) -> Ledger:
    """Return a ledger with changes, each of which is given its result or its error."""
    for change in batch:
        change.after = change.error = None
        try:
            ledger = change.after = change.apply(ledger)
        except (NodeGoneError, NodeTakenError, NodeVersionError) as error:
            change.error = error
    return ledger
