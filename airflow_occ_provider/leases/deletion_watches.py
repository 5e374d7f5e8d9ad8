"""Watches on the deletion of requests, one per waiter."""

from __future__ import annotations

from collections.abc import Callable

from airflow_occ_provider.leases.store import Store


class DeletionWatches:
    """The watches of the waiters, at most one for each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watched: dict[str, tuple[str, Callable[[], None]]] = {}

    def set(self, waiter: str, predecessor: str, wake: Callable[[], None]) -> bool:
        """Wake a waiter when its predecessor is gone; return whether it exists now."""
        if self._watched.get(waiter) == (predecessor, wake):
            return True

        def fired() -> None:
            self.forget(waiter)
            wake()

        self._watched[waiter] = (predecessor, wake)
        exists = False
        try:
            exists = self._store.on_delete(predecessor, fired)
        finally:
            # Without an answer there may be no watch; the next call sets one.
            if not exists:
                self.forget(waiter)
        return exists

    def forget(self, waiter: str) -> None:
        """Discard the waiter's watch, so that the next call sets one."""
        self._watched.pop(waiter, None)
