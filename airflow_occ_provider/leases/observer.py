"""Sees which requests in a line are renewed, and removes those that are not.

No wall clocks are compared: a node whose version stood still for its term on the observer's own
monotonic clock is dead, and is deleted by that version, so that a renewal in between saves it
(Gray and Cheriton, "Leases", SOSP 1989).

Only time in which the owner could have renewed counts. After a call that failed, or that took as long
as a renewal may be late, every term begins anew: the lock service may have been away. Between two
looks at most one renewal's period counts: nothing is known of the service in between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from airflow_occ_provider.errors import LeaseRefusedError
from airflow_occ_provider.leases.nodes import Node, NodeGoneError, NodeMovedError, Nodes
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Standing

RENEWALS_PER_TTL = 3
"""How often an owner renews within its time to live, and an observer looks."""

# An owner stops trusting its term before the end, an observer waits a little longer: two clocks
# may run unequally fast.
TRUSTED = 0.9
_EXPIRED = 1.02


@dataclass(frozen=True, slots=True)
class _Sighting:
    token: int
    version: int
    term_s: float
    period_s: float
    seen_s: float
    stood_s: float = 0.0

    def is_expired(self) -> bool:
        return self.stood_s > self.term_s * _EXPIRED


class Observer:
    """Looks at nodes again and again.

    :param nodes: the store.
    :param clock: seconds that never go back.
    """

    def __init__(self, nodes: Nodes, clock: Callable[[], float]) -> None:
        self._nodes = nodes
        self._clock = clock
        self._lock = threading.Lock()
        self._sightings: dict[str, _Sighting] = {}

    def disturbed(self, seconds: float) -> None:
        """Begin every term anew whose owner may have been kept from renewing.

        :param seconds: for which the lock service did not answer.
        """
        with self._lock:
            for name, sighting in list(self._sightings.items()):
                if seconds >= sighting.period_s:
                    del self._sightings[name]

    def saw(self, nodes: Mapping[str, Node]) -> None:
        """Begin the terms of nodes that were read for another reason."""
        for name, node in nodes.items():
            self._see(name, node)

    def remove_dead(self, elders: Iterable[Standing], ttl_ms: int) -> bool:
        """Look at those that were not looked at for half a renewal; whether one of them is gone.

        :param elders: whom somebody waits for.
        :param ttl_ms: his own time to live, in milliseconds.
        """
        now_s = self._clock()
        due = [one.name for one in elders if not one.unknown and self._is_due(one, ttl_ms, now_s)]
        if not due:
            return False
        nodes = self._nodes.read(due)
        if missing := [name for name in due if name not in nodes]:
            nodes |= self._nodes.latest(missing)
        return bool([name for name in due if name not in nodes or self._remove(name, nodes[name])])

    def forget_all_but(self, names: frozenset[str]) -> None:
        """Forget the nodes that are gone."""
        with self._lock:
            for name in self._sightings.keys() - names:
                del self._sightings[name]

    def _is_due(self, elder: Standing, ttl_ms: int, now_s: float) -> bool:
        sighting = self._sightings.get(elder.name)
        period_s = min(ttl_ms, elder.request.ttl_ms) / 1000 / RENEWALS_PER_TTL
        return sighting is None or now_s - sighting.seen_s >= period_s / 2

    def _remove(self, name: str, node: Node) -> bool:
        sighting = self._see(name, node)
        if not sighting.is_expired():
            return False
        try:
            self._nodes.delete(name, sighting.version)
        except NodeMovedError:
            return False
        except NodeGoneError:
            pass
        return True

    def _see(self, name: str, node: Node) -> _Sighting:
        with self._lock:
            # The clock is read after the node: the version is at least that old.
            now_s, before = self._clock(), self._sightings.get(name)
            if before and (before.token, before.version) == (node.token, node.version):
                more_s = min(now_s - before.seen_s, before.period_s)
                sighting = replace(before, seen_s=now_s, stood_s=before.stood_s + more_s)
            else:
                term_s, period_s = _times(node, name)
                sighting = _Sighting(node.token, node.version, term_s, period_s, now_s)
            self._sightings[name] = sighting
            return sighting


def _times(node: Node, name: str) -> tuple[float, float]:
    """Return a node's term and the period of its renewals, in seconds."""
    try:
        content = Content.decode(node.data, name)
    except LeaseRefusedError:  # rewritten by a release that may count otherwise
        return float("inf"), float("inf")
    return content.term_ms / 1000, content.request.ttl_ms / 1000 / RENEWALS_PER_TTL
