"""A store whose nodes are those of a ledger that processes share."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from airflow_occ_provider.leases.ledger import Change, Ledger, LedgerClient
from airflow_occ_provider.leases.store import Node, Version

_FRESH_PER_POLL = 15

_log = logging.getLogger(__name__)


class LedgerStore:
    """The ``Store`` in a ledger. Threads may share it.

    :param ledger: the client of the ledger, which the store closes.
    :param poll_s: the most seconds between two looks for deletions, while one is waited for.
    """

    def __init__(self, ledger: LedgerClient, poll_s: float) -> None:
        self._fresh_s = fresh_s(poll_s)
        self._ledger = ledger
        self._watches = _Watches(ledger, poll_s)

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        """Return the names of all nodes, with their versions."""
        return {name: node.version for name, node in self._ledger.current(age_s).nodes.items()}

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        """Return the nodes that exist, at most a fifteenth of a poll ago."""
        nodes = self._ledger.current(0.0 if latest else self._fresh_s).nodes
        return {name: nodes[name] for name in names if name in nodes}

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        creation = Change("create", name, data, requires, now_ms=_now_ms())
        return self._ledger.change(creation).nodes[name]

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace a node's content and return its new version."""
        replacement = Change("replace", name, data, version=version, now_ms=_now_ms())
        return self._ledger.change(replacement, is_urgent=False).nodes[name].version

    def delete(self, name: str, version: Version) -> None:
        """Delete a node."""
        self._ledger.change(Change("delete", name, version=version))

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        node = self._ledger.current().nodes.get(name)
        if node is not None:
            self._watches.add(name, node, wake)
        return node is not None

    def close(self) -> None:
        """Stop looking for deletions and close the connection; the nodes stay."""
        self._watches.close()
        self._ledger.close()


class _Watch(NamedTuple):
    name: str
    token: int
    wake: Callable[[], None]

    def is_due(self, ledger: Ledger) -> bool:
        """Whether a ledger shows that the node is gone; one older than it shows nothing."""
        node = ledger.nodes.get(self.name)
        return ledger.revision >= self.token and (node is None or node.token != self.token)


class _Watches:
    """The waiters for deletions, woken by any call's look.

    A thread looks if no call does.

    :param ledger: in which nodes are deleted.
    :param poll_s: the most seconds between two looks while there are waiters.
    """

    def __init__(self, ledger: LedgerClient, poll_s: float) -> None:
        self._ledger, self._poll_s = ledger, poll_s
        self._latest = Ledger(0)
        ledger.on_seen = self.wake
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, name: str, node: Node, wake: Callable[[], None]) -> None:
        """Wake a waiter once when a node is deleted; in any thread."""
        watch = _Watch(name, node.token, wake)
        with self._lock:
            if watch.is_due(self._latest):  # another thread has looked since
                watch.wake()
                return
            self._watches.append(watch)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, daemon=True, name="lease-poll")
                self._thread.start()

    def wake(self, ledger: Ledger) -> None:
        """Wake the waiters for what is gone in a ledger."""
        with self._lock:
            if ledger.revision > self._latest.revision:
                self._latest = ledger
            due = [watch for watch in self._watches if watch.is_due(ledger)]
            if due:
                self._watches = [watch for watch in self._watches if watch not in due]
        for watch in due:
            with suppress(Exception):  # the event loop of this waiter may be closed
                watch.wake()

    def close(self) -> None:
        """Stop looking after the current look."""
        self._closed.set()

    def _run(self) -> None:
        pause_s = self._until_due_s()
        while not self._closed.wait(pause_s):
            if self._is_over():
                return
            pause_s = self._until_due_s()
            if pause_s > 0:
                continue  # another call has looked since
            try:
                self._ledger.current()
                pause_s = self._until_due_s()
            except Exception as error:  # noqa: BLE001 - the waiters keep waiting
                _log.debug("Looking again: %s", error)
                pause_s = self._poll_s

    def _until_due_s(self) -> float:
        return max(0.0, self._ledger.seen_s + self._poll_s - time.monotonic())

    def _is_over(self) -> bool:
        with self._lock:
            if not self._watches:
                self._thread = None
            return not self._watches


def fresh_s(poll_s: float) -> float:
    """Return the age in seconds up to which a reader takes a ledger as it is."""
    return poll_s / _FRESH_PER_POLL


def _now_ms() -> int:
    return round(time.time() * 1000)
