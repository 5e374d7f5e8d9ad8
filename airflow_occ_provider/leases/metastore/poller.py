"""Wakes those who wait: a metastore calls nobody back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress

_log = logging.getLogger(__name__)


class Poller:
    """Look again and again, in one thread for all who wait, while somebody does.

    :param look: returns the ids of the locks that are there.
    :param poll_s: seconds between two looks.
    """

    def __init__(self, look: Callable[[], Collection[int]], poll_s: float) -> None:
        self._look = look
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._watches: dict[int, tuple[int, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def watch(self, waiter: int, elder: int, wake: Callable[[], None]) -> None:
        """Have a waiter woken once when an elder's lock is gone; he has one watch at a time.

        :param waiter: id of his lock.
        :param elder: id of the lock that he waits for.
        :param wake: called in the thread.
        """
        with self._lock:
            self._watches[waiter] = (elder, wake)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, daemon=True, name="metastore-poll")
                self._thread.start()

    def forget(self, waiter: int) -> None:
        """Wake a waiter no more."""
        with self._lock:
            self._watches.pop(waiter, None)

    def close(self) -> None:
        """End the thread after its look."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._poll_s):
            try:
                there = set(self._look())
            except Exception as error:  # noqa: BLE001 - whatever it is, they wait on
                _log.debug("Looking again: %s", error)
                continue
            with self._lock:
                due = [one for one, (elder, _) in self._watches.items() if not {elder, one} <= there]
                wakes = [self._watches.pop(one)[1] for one in due]
                is_last = not self._watches
                if is_last:
                    self._thread = None
            for wake in wakes:
                with suppress(Exception):  # his loop may be closed; the others wait on
                    wake()
            if is_last:
                return
