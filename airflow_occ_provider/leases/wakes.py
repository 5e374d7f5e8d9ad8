"""Which waiter is woken by the end of which request."""

from __future__ import annotations

from collections.abc import Callable

from airflow_occ_provider.leases.nodes import Nodes


class Wakes:
    """One watch for each waiter at a time.

    :param nodes: the store.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._watched: dict[str, tuple[str, Callable[[], None]]] = {}

    def set(self, waiter: str, elder: str, wake: Callable[[], None]) -> bool:
        """Have a waiter woken when an elder is gone; whether the elder is there now."""
        if self._watched.get(waiter) == (elder, wake):
            return True

        def fired() -> None:
            self.forget(waiter)
            wake()

        self._watched[waiter] = (elder, wake)
        is_there = False
        try:
            is_there = self._nodes.watch(elder, fired)
        finally:
            # Without an answer there may be no watch: the next call sets another.
            if not is_there:
                self.forget(waiter)
        return is_there

    def forget(self, waiter: str) -> None:
        """Let the next call for the waiter set a watch."""
        self._watched.pop(waiter, None)
