"""A store in memory: the reference for other stores, and a store for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from airflow_occ_provider.leases.nodes import Node, NodeGoneError, NodeTakenError, NodeVersionError


class MemoryNodes:
    """Nodes in this process's memory.

    :param now_ms: returns epoch milliseconds, for display.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: round(time.time() * 1000)) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._watches: dict[str, list[Callable[[], None]]] = {}
        self._token = 0

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        with self._lock:
            if requires is not None and requires not in self._nodes:
                raise NodeGoneError(requires)
            if name in self._nodes:
                raise NodeTakenError(name)
            self._token += 1
            self._nodes[name] = node = Node(data, 0, self._token, self._now_ms())
            return node

    def names(self) -> frozenset[str]:
        """Return the names of all nodes."""
        with self._lock:
            return frozenset(self._nodes)

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        """Return the nodes that exist."""
        with self._lock:
            return {name: self._nodes[name] for name in names if name in self._nodes}

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        """Return the nodes that exist."""
        return self.read(names)

    def write(self, name: str, data: bytes, version: int) -> int:
        """Replace a node's content and return its new version."""
        with self._lock:
            node = self._at(name, version)
            self._nodes[name] = node._replace(data=data, version=version + 1)
            return version + 1

    def delete(self, name: str, version: int) -> None:
        """Delete a node."""
        with self._lock:
            self._at(name, version)
            del self._nodes[name]
            watches = self._watches.pop(name, [])
        for wake in watches:
            wake()

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        with self._lock:
            if name in self._nodes:
                self._watches.setdefault(name, []).append(wake)
            return name in self._nodes

    def close(self) -> None:
        """Do nothing: the nodes stay for other queues over them."""

    def _at(self, name: str, version: int) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise NodeGoneError(name)
        if node.version != version:
            raise NodeVersionError(name)
        return node
