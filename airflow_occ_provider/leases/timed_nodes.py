"""Nodes that report slow and failed calls, to restart the terms of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.nodes import Node, Nodes

_SLOW_S = 0.1


class TimedNodes:
    """``Nodes`` that wrap a store and report its slow and failed calls.

    :param nodes: the store.
    :param clock: a monotonic clock, in seconds.
    :param on_delay: called with the seconds that a slow call took, infinite for a failed one.
    """

    def __init__(
        self, nodes: Nodes, clock: Callable[[], float], on_delay: Callable[[float], None]
    ) -> None:
        self._nodes = nodes
        self._clock = clock
        self._on_delay = on_delay

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        with self._timed():
            return self._nodes.create(name, data, requires)

    def names(self) -> frozenset[str]:
        """Return the names of all nodes, including every change answered before the call."""
        with self._timed():
            return self._nodes.names()

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        """Return the nodes that exist."""
        with self._timed():
            return self._nodes.read(names)

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        """Return the nodes that exist, including every change answered before the call."""
        with self._timed():
            return self._nodes.latest(names)

    def write(self, name: str, data: bytes, version: int) -> int:
        """Replace a node's content and return its new version."""
        with self._timed():
            return self._nodes.write(name, data, version)

    def delete(self, name: str, version: int) -> None:
        """Delete a node."""
        with self._timed():
            self._nodes.delete(name, version)

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        with self._timed():
            return self._nodes.watch(name, wake)

    def close(self) -> None:
        """Close the connection."""
        self._nodes.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started_s = self._clock()
        try:
            yield
        except LockUnreachableError:
            self._on_delay(float("inf"))
            raise
        took_s = self._clock() - started_s
        if took_s > _SLOW_S:
            self._on_delay(took_s)
