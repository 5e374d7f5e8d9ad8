"""The poller: wakes waiters of a lock service that has no callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Hashable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)
_Id = TypeVar("_Id", bound=Hashable)


class Poller(Generic[_Id]):
    """A thread that looks what exists, and wakes waiters of what is gone."""

    def __init__(self, poll: Callable[[], Collection[_Id]], poll_s: float) -> None:
        self._poll = poll
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._watches: dict[int, tuple[AbstractSet[_Id], Callable[[], None]]] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def watch(self, waiter: int, ids: AbstractSet[_Id], wake: Callable[[], None]) -> None:
        """Wake a waiter once when one of some ids is gone.

        A new watch of a waiter replaces its earlier one. ``wake`` is called in the thread.
        """
        with self._lock:
            self._watches[waiter] = (ids, wake)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, daemon=True, name="lease-poll")
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
                due = [one for one, (ids, _) in self._watches.items() if not ids <= present]
                wakes = [self._watches.pop(one)[1] for one in due]
                is_last = not self._watches
                if is_last:
                    self._thread = None
            for wake in wakes:
                with suppress(Exception):  # the event loop of this waiter may be closed
                    wake()
            if is_last:
                return
