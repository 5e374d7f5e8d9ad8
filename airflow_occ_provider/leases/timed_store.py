"""A store that reports its slow and failed calls, to restart the terms of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.store import Node, Store, Version

_SLOW_S = 0.1


class TimedStore:
    """A ``Store`` over another one, which reports the slow and failed calls.

    :param store: the other store.
    :param clock: a monotonic clock, in seconds.
    :param on_delay: called with the seconds that a slow call took, infinite for a failed one.
    """

    def __init__(
        self, store: Store, clock: Callable[[], float], on_delay: Callable[[float], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_delay = on_delay

    def stamps(self) -> Mapping[str, Version | None]:
        """Return the names of all nodes, including every change answered before the call."""
        with self._timed():
            return self._store.stamps()

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        """Return the nodes that exist."""
        with self._timed():
            return self._store.read(names, latest=latest)

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        """Create a node, atomically with a check that another one exists."""
        with self._timed():
            return self._store.create(name, data, requires)

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        """Replace a node's content and return its new version."""
        with self._timed():
            return self._store.replace(name, data, version)

    def delete(self, name: str, version: Version) -> None:
        """Delete a node."""
        with self._timed():
            self._store.delete(name, version)

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        """Call ``wake`` once when a node is deleted; return whether it exists now."""
        with self._timed():
            return self._store.on_delete(name, wake)

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

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
