"""What a process knows of a queue's nodes, read once and observed.

No wall clocks are compared. A node expires if its version does not change for its term, measured on
the observer's own monotonic clock. It is deleted by that version, so that a concurrent renewal saves
it (Gray and Cheriton, "Leases", SOSP 1989).

Only time in which the owner could have renewed counts. After a failed or slow call every term starts
again, because the lock service may have been unavailable. Between two observations at most one
renewal period counts, because the service may have been unavailable in between.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from airflow_occ_provider.errors import LeaseRefusedError, LockUnreachableError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import QueuedRequest
from airflow_occ_provider.leases.store import Node, NodeGoneError, NodeVersionError, Store, Version

RENEWALS_PER_TTL = 3
"""How often an owner renews, and an observer checks, within a TTL."""

RECENT = 1 / 60
"""The share of a renewal period that a listing may be old, so that threads share one."""

# An owner stops trusting its lease before the term ends, and an observer waits a little longer: two
# clocks may run at different speeds.
TRUSTED = 0.9
_EXPIRED = 1.02
_SLOW_S = 0.1


@dataclass(frozen=True, slots=True)
class _Observation:
    token: int
    version: Version
    term_s: float
    period_s: float
    seen_s: float
    unchanged_s: float = 0.0

    def is_expired(self) -> bool:
        return self.unchanged_s > self.term_s * _EXPIRED


class Observer:
    """The observations of other owners' nodes, and the removal of expired ones."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._observations: dict[str, _Observation] = {}

    def on_delay(self, seconds: float) -> None:
        """Restart every term whose owner may have missed a renewal in these seconds."""
        with self._lock:
            for name, observation in list(self._observations.items()):
                if seconds >= observation.period_s:
                    del self._observations[name]

    def observe(self, nodes: Mapping[str, Node]) -> None:
        """Record nodes that were read for another reason."""
        for name, node in nodes.items():
            with self._lock:
                before = self._observations.get(name)
                if before and (before.token, before.version) == (node.token, node.version):
                    self._observations[name] = self._continued(before)
                else:
                    # The clock is read after the node, so the version is at least that old.
                    self._observations[name] = _Observation(
                        node.token, node.version, *_times(node, name), self._clock()
                    )

    def listed(self, stamps: Mapping[str, Version | None]) -> None:
        """Record a listing of all nodes: which are gone, and each one's version.

        It may be a little old. Time in which a node was replaced since may then count, but only the
        deletion by its version decides.
        """
        with self._lock:
            for name, before in list(self._observations.items()):
                if name not in stamps:
                    del self._observations[name]
                elif stamps[name] == before.version:
                    self._observations[name] = self._continued(before)

    def observations(self, names: Iterable[str]) -> dict[str, list[Any]]:
        """Return what is known of some nodes, as JSON values for another process."""
        now_s = self._clock()
        with self._lock:
            observed = {name: self._observations[name] for name in names if name in self._observations}
        return {
            name: [*astuple(replace(observation, seen_s=observation.seen_s - now_s))]
            for name, observation in observed.items()
            if math.isfinite(observation.term_s)  # another release's never expires here
        }

    def recall(self, observations: Mapping[str, Sequence[Any]], age_s: float) -> None:
        """Continue from what an earlier process observed.

        :param observations: what ``observations`` returned there.
        :param age_s: seconds since then. At most one renewal period of them counts, as between any two
            observations, so that a clock that differs makes nothing expire early.
        """
        now_s = self._clock()
        with self._lock:
            for name, values in observations.items():
                before = _Observation(*values)
                seen_s = now_s + before.seen_s - max(age_s, 0.0)
                self._observations[name] = replace(before, seen_s=seen_s)

    def remove_expired(self, earlier: Iterable[QueuedRequest], ttl_ms: int) -> bool:
        """Remove expired requests before a waiter's; return whether one of them is gone.

        A request that was observed within half a renewal period is not read again.
        """
        now_s = self._clock()
        readable = [queued for queued in earlier if not queued.unknown]
        due = [queued.name for queued in readable if self._is_due(queued, ttl_ms, now_s)]
        nodes = self._store.read(due) if due else {}
        if missing := [name for name in due if name not in nodes]:
            nodes |= self._store.read(missing, latest=True)
        self.observe(nodes)
        gone = [name for name in due if name not in nodes]
        removed = [queued for queued in readable if self._remove(queued.name)]
        return bool(gone or removed)

    def _is_due(self, earlier: QueuedRequest, ttl_ms: int, now_s: float) -> bool:
        observation = self._observations.get(earlier.name)
        period_s = min(ttl_ms, earlier.request.ttl_ms) / 1000 / RENEWALS_PER_TTL
        return observation is None or now_s - observation.seen_s >= period_s / 2

    def _remove(self, name: str) -> bool:
        """Remove a node if it has expired; return whether it is gone."""
        observation = self._observations.get(name)
        if observation is None or not observation.is_expired():
            return False
        try:
            self._store.delete(name, observation.version)
        except NodeVersionError:
            with self._lock:
                self._observations.pop(name, None)
            return False
        except NodeGoneError:
            pass
        return True

    def _continued(self, before: _Observation) -> _Observation:
        """Return the observation of a node whose version is the same as before."""
        now_s = self._clock()
        more_s = min(now_s - before.seen_s, before.period_s)
        return replace(before, seen_s=now_s, unchanged_s=before.unchanged_s + more_s)


def _times(node: Node, name: str) -> tuple[float, float]:
    """Return a node's term and renewal period, in seconds."""
    try:
        content = Content.decode(node.data, name)
    except LeaseRefusedError:  # written by a release with other rules
        return float("inf"), float("inf")
    return content.term_ms / 1000, content.request.ttl_ms / 1000 / RENEWALS_PER_TTL


@dataclass(eq=False)
class TimedStore:
    """The calls of a ``Store``, of which the slow and failed ones are reported.

    :param on_delay: called with the seconds that a slow call took, infinite for a failed one.
    """

    store: Store
    clock: Callable[[], float]
    on_delay: Callable[[float], None]

    def __getattr__(self, call: str) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            started_s = self.clock()
            try:
                answer = getattr(self.store, call)(*arguments, **options)
            except LockUnreachableError:
                self.on_delay(float("inf"))
                raise
            took_s = self.clock() - started_s
            if took_s > _SLOW_S:
                self.on_delay(took_s)
            return answer

        return timed


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
        self._requests: dict[str, QueuedRequest] = {}
        self._sharing = threading.Lock()
        self._shared_s = float("-inf")
        self._shared = frozenset[str]()

    def names(self, age_s: float = 0.0) -> frozenset[str]:
        """Return the names of all requests.

        :param age_s: seconds before the call, by which an answered change is included.
        """
        stamps = self._store.stamps(age_s=age_s)
        names = frozenset(stamps)
        for name in list(self._requests.keys() - names):
            self._requests.pop(name, None)
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
        self._requests[name] = request_node.queued(name, node)

    def read_all(self, names: Collection[str]) -> list[QueuedRequest]:
        """Return the requests of some nodes.

        :raises NodeGoneError: if one is gone.
        """
        requests = self.read(names)
        if len(requests) < len(names):
            raise NodeGoneError("one of the names")
        return requests

    def read(self, names: Iterable[str], *, renewals: bool = False) -> list[QueuedRequest]:
        """Return the requests of the nodes that exist; a cached one is not read again.

        :param renewals: whether all are read, for the times of their last renewals.
        """
        wanted = set(names)
        cached = {} if renewals else self._requests
        requests = {name: request for name in wanted if (request := cached.get(name))}
        unread = {name for name in wanted - requests.keys() if request_node.parse(name)}
        nodes = self._store.read(unread) if unread else {}
        if missing := unread - nodes.keys():  # gone since, or not yet known to a lagging server
            nodes |= self._store.read(missing, latest=True)
        for name in nodes.keys() | (wanted - requests.keys() - unread):
            self._requests[name] = requests[name] = request_node.queued(name, nodes.get(name))
        self._observer.observe(nodes)
        return list(requests.values())
