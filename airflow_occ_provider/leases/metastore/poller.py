"""The poller: wakes waiters, because a metastore has no callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress

_log = logging.getLogger(__name__)


class Poller:
    """A thread that polls the locks' ids while there are waiters, and wakes them."""

    def __init__(self, poll: Callable[[], Collection[int]], poll_s: float) -> None:
        self._poll = poll
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._watches: dict[int, tuple[int, Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def watch(self, waiter: int, predecessor: int, wake: Callable[[], None]) -> None:
        """Wake a waiter once when its own or its predecessor's lock is gone.

        A new watch of a waiter replaces its earlier one. ``wake`` is called in the thread.
        """
        with self._lock:
            self._watches[waiter] = (predecessor, wake)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, daemon=True, name="metastore-poll")
                self._thread.start()

    def forget(self, waiter: int) -> None:
        """Remove the watch of a waiter."""
        with self._lock:
            self._watches.pop(waiter, None)

    def close(self) -> None:
        """Stop the thread after its current poll."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._poll_s):
            try:
                present = set(self._poll())
            except Exception as error:  # noqa: BLE001 - the waiters keep waiting
                _log.debug("Polling again: %s", error)
                continue
            with self._lock:
                due = [one for one, (before, _) in self._watches.items() if not {before, one} <= present]
                wakes = [self._watches.pop(one)[1] for one in due]
                is_last = not self._watches
                if is_last:
                    self._thread = None
            for wake in wakes:
                with suppress(Exception):  # the event loop of this waiter may be closed
                    wake()
            if is_last:
                return
