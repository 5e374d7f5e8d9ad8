"""The queue's store in one object of an object store, or one file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from airflow_occ_provider.leases.storage.shared_ledger import SharedLedger
from airflow_occ_provider.leases.storage.shared_object import SharedObject
from airflow_occ_provider.leases.storage.watches import Watches
from airflow_occ_provider.leases.store import Node, Version

_FRESH_PER_POLL = 15


class StorageStore:
    """The ``Store`` in a shared object. Threads may share it.

    :param shared: the object.
    :param poll_s: the most seconds between two looks for deletions, while one is waited for.
    :param timeout_s: for each call.
    :param gather_s: seconds between two writes of replacements, after some without a pause.
    """

    def __init__(
        self,
        shared: SharedObject,
        poll_s: float = 1.0,
        timeout_s: float = 10.0,
        gather_s: float = 0.0,
    ) -> None:
        self._fresh_s = poll_s / _FRESH_PER_POLL
        self._ledger = SharedLedger(shared, timeout_s, gather_s=gather_s, fresh_s=self._fresh_s)
        self._watches = Watches(self._ledger, poll_s)

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        """Return the names of all nodes, with their versions."""
        return {name: node.version for name, node in self._ledger.current(age_s).nodes.items()}

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        """Return the nodes that exist, at most a fifteenth of a poll ago."""
        found = self._ledger.current(0.0 if latest else self._fresh_s).nodes
        return {name: found[name] for name in names if name in found}

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        now_ms = round(time.time() * 1000)
        after = self._ledger.change(lambda before: before.created(name, data, requires, now_ms))
        return after.nodes[name]

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace a node's content and return its new version."""
        now_ms = round(time.time() * 1000)
        after = self._ledger.change(
            lambda before: before.replaced(name, data, version, now_ms), is_urgent=False
        )
        return after.nodes[name].version

    def delete(self, name: str, version: Version) -> None:
        """Delete a node."""
        self._ledger.change(lambda before: before.deleted(name, version))

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        node = self._ledger.current().nodes.get(name)
        if node is not None:
            self._watches.add(name, node, wake)
        return node is not None

    def close(self) -> None:
        """Stop looking for deletions; the nodes stay."""
        self._watches.close()
