"""The waiters for deletions in a ledger, and the thread that looks for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from airflow_occ_provider.leases.storage.ledger import Ledger
from airflow_occ_provider.leases.storage.shared_ledger import SharedLedger
from airflow_occ_provider.leases.store import Node

_log = logging.getLogger(__name__)


class _Watch(NamedTuple):
    name: str
    token: int
    wake: Callable[[], None]

    def is_due(self, ledger: Ledger) -> bool:
        """Whether a ledger shows that the node is gone; one older than it shows nothing."""
        node = ledger.nodes.get(self.name)
        return ledger.revision >= self.token and (node is None or node.token != self.token)


class Watches:
    """The waiters for deletions, woken by any call's look.

    A thread looks if no call does.

    :param ledger: in which nodes are deleted.
    :param poll_s: the most seconds between two looks while there are waiters.
    """

    def __init__(self, ledger: SharedLedger, poll_s: float) -> None:
        self._ledger, self._poll_s = ledger, poll_s
        self._seen = Ledger(0)
        ledger.on_seen = self.seen
        self._lock = threading.Lock()
        self._watches: list[_Watch] = []
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def add(self, name: str, node: Node, wake: Callable[[], None]) -> None:
        """Wake a waiter once when a node is deleted; in any thread."""
        watch = _Watch(name, node.token, wake)
        with self._lock:
            if watch.is_due(self._seen):  # another thread has looked since
                watch.wake()
                return
            self._watches.append(watch)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, daemon=True, name="lease-poll")
                self._thread.start()

    def seen(self, ledger: Ledger) -> None:
        """Wake the waiters for what is gone in a ledger."""
        with self._lock:
            if ledger.revision > self._seen.revision:
                self._seen = ledger
            due = [one for one in self._watches if one.is_due(ledger)]
            self._watches = [one for one in self._watches if one not in due] if due else self._watches
        for one in due:
            with suppress(Exception):  # the event loop of this waiter may be closed
                one.wake()

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
