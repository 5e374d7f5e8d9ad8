"""Reads a store: its listings, and the unchanging part of each request once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.observer import RECENT, Observer
from airflow_occ_provider.leases.rules import QueuedRequest
from airflow_occ_provider.leases.store import Node, NodeGoneError, Store


class Reader:
    """The requests in a store: owner, scopes and position of each are read once.

    :param on_gone: called with the names of a listing, to discard what is known of other nodes.
    """

    def __init__(
        self, store: Store, observer: Observer, on_gone: Callable[[frozenset[str]], None]
    ) -> None:
        self._store = store
        self._observer = observer
        self._on_gone = on_gone
        self._known: dict[str, QueuedRequest] = {}
        self._sharing = threading.Lock()
        self._shared_s = float("-inf")
        self._shared = frozenset[str]()

    def names(self, age_s: float = 0.0) -> frozenset[str]:
        """Return the names of all requests.

        :param age_s: seconds before the call, by which an answered change is included.
        """
        stamps = self._store.stamps(age_s=age_s)
        names = frozenset(stamps)
        for name in list(self._known.keys() - names):
            self._known.pop(name, None)
        self._observer.listed(stamps)
        self._on_gone(names)
        return names

    def recent_names(self, now_s: float, age_s: float) -> frozenset[str]:
        """Return a listing that may be some seconds old, and that threads share.

        A thread does not wait for the listing of another one: it gets the last one, empty at first.
        """
        if self._sharing.acquire(blocking=False):
            try:
                if now_s - self._shared_s >= age_s:
                    self._shared, self._shared_s = self.names(age_s * RECENT), now_s
            finally:
                self._sharing.release()
        return self._shared

    def add(self, name: str, node: Node) -> None:
        """Cache the request of a node that was created."""
        self._known[name] = request_node.queued(name, node)

    def read_all(self, names: Collection[str]) -> list[QueuedRequest]:
        """Return the requests of some nodes.

        :raises NodeGoneError: if one is gone.
        """
        found = self.read(names)
        if len(found) < len(names):
            raise NodeGoneError("one of the names")
        return found

    def read(self, names: Iterable[str], *, renewals: bool = False) -> list[QueuedRequest]:
        """Return the requests of the nodes that exist; a cached one is not read again.

        :param renewals: whether all are read, for the times of their last renewals.
        """
        wanted = set(names)
        cached = {} if renewals else self._known
        found = {name: known for name in wanted if (known := cached.get(name))}
        unread = {name for name in wanted - found.keys() if request_node.parse(name)}
        nodes = self._store.read(unread) if unread else {}
        if missing := unread - nodes.keys():  # gone since, or not yet known to a lagging server
            nodes |= self._store.read(missing, latest=True)
        for name in nodes.keys() | (wanted - found.keys() - unread):
            self._known[name] = found[name] = request_node.queued(name, nodes.get(name))
        self._observer.observe(nodes)
        return list(found.values())
