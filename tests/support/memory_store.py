"""A store in memory: the reference for other stores, and a store for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping

from airflow_occ_provider.leases.store import (
    Node,
    NodeGoneError,
    NodeTakenError,
    NodeVersionError,
    Version,
)


class MemoryStore:
    """A ``Store`` in this process's memory.

    :param now_ms: returns epoch milliseconds, for display.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: round(time.time() * 1000)) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._nodes: dict[str, Node] = {}
        self._callbacks: dict[str, list[Callable[[], None]]] = {}
        self._token = 0

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        """Return the names of all nodes, with their versions."""
        with self._lock:
            return {name: node.version for name, node in self._nodes.items()}

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        """Return the nodes that exist."""
        with self._lock:
            return {name: self._nodes[name] for name in names if name in self._nodes}

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        with self._lock:
            if requires is not None and requires not in self._nodes:
                raise NodeGoneError(requires)
            if name in self._nodes:
                raise NodeTakenError(name)
            self._token += 1
            self._nodes[name] = node = Node(data, 0, self._token, *2 * [self._now_ms()])
            return node

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace a node's content and return its new version."""
        with self._lock:
            node = self._at(name, version)
            node = node._replace(data=data, version=int(version) + 1, renewed_ms=self._now_ms())
            self._nodes[name] = node
            return self._nodes[name].version

    def delete(self, name: str, version: Version) -> None:
        """Delete a node."""
        with self._lock:
            self._at(name, version)
            del self._nodes[name]
            callbacks = self._callbacks.pop(name, [])
        for wake in callbacks:
            wake()

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        with self._lock:
            if name in self._nodes:
                self._callbacks.setdefault(name, []).append(wake)
            return name in self._nodes

    def close(self) -> None:
        """Do nothing: the nodes stay for other queues over them."""

    def _at(self, name: str, version: Version) -> Node:
        node = self._nodes.get(name)
        if node is None:
            raise NodeGoneError(name)
        if node.version != version:
            raise NodeVersionError(name)
        return node
