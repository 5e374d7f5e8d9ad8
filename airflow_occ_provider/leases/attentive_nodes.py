"""Nodes that report each call which failed or took long: the lock service may have been away."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.nodes import Node, Nodes

_SHORT_S = 0.1


class AttentiveNodes:
    """``Nodes`` over other nodes.

    :param nodes: the store.
    :param clock: seconds that never go back.
    :param disturbed: called with the seconds that a slow call took, infinite for one that failed.
    """

    def __init__(
        self, nodes: Nodes, clock: Callable[[], float], disturbed: Callable[[float], None]
    ) -> None:
        self._nodes = nodes
        self._clock = clock
        self._disturbed = disturbed

    def create(self, name: str, data: bytes, beside: str | None = None) -> Node:
        """Create a node, in the same instant in which another one is there."""
        with self._timed():
            return self._nodes.create(name, data, beside)

    def names(self) -> frozenset[str]:
        """Return the names of all nodes; every change that was answered before the call is seen."""
        with self._timed():
            return self._nodes.names()

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        """Return those nodes that are there."""
        with self._timed():
            return self._nodes.read(names)

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        """Return those nodes that are there; every change that was answered before the call is seen."""
        with self._timed():
            return self._nodes.latest(names)

    def write(self, name: str, data: bytes, version: int) -> int:
        """Replace a node's content, and return its new version."""
        with self._timed():
            return self._nodes.write(name, data, version)

    def delete(self, name: str, version: int) -> None:
        """Delete a node."""
        with self._timed():
            self._nodes.delete(name, version)

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        """Have ``wake`` called once when a node is deleted; whether it is there now."""
        with self._timed():
            return self._nodes.watch(name, wake)

    def close(self) -> None:
        """End the connection."""
        self._nodes.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started_s = self._clock()
        try:
            yield
        except LockUnreachableError:
            self._disturbed(float("inf"))
            raise
        took_s = self._clock() - started_s
        if took_s > _SHORT_S:
            self._disturbed(took_s)
