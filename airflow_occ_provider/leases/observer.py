"""Sees who in a line lives, and removes who does not.

Nobody compares wall clocks: a node whose version stood still for its term on the observer's own
monotonic clock is dead, and is deleted by that version, so that a renewal in between saves it
(Gray and Cheriton, "Leases", SOSP 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

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
    since_s: float
    seen_s: float

    def is_expired(self) -> bool:
        return self.seen_s - self.since_s > self.term_s * _EXPIRED


class Observer:
    """Looks at nodes again and again.

    :param nodes: the store.
    :param clock: seconds that never go back.
    """

    def __init__(self, nodes: Nodes, clock: Callable[[], float]) -> None:
        self._nodes = nodes
        self._clock = clock
        self._sightings: dict[str, _Sighting] = {}

    def remove_dead(self, elders: Iterable[Standing], ttl_ms: int) -> bool:
        """Look at those that were not looked at for half a renewal; whether one of them is gone.

        :param elders: whom somebody waits for.
        :param ttl_ms: his own time to live, in milliseconds.
        """
        now_s = self._clock()
        due = [one.name for one in elders if self._is_due(one, ttl_ms, now_s)]
        if not due:
            return False
        nodes = self._nodes.read(due)
        return bool([name for name in due if name not in nodes or self._remove(name, nodes[name])])

    def forget_all_but(self, names: frozenset[str]) -> None:
        """Forget the nodes that are gone."""
        for name in self._sightings.keys() - names:
            self._sightings.pop(name, None)

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
        # The clock is read after the node: the version is at least that old.
        now_s = self._clock()
        before = self._sightings.get(name)
        if before and (before.token, before.version) == (node.token, node.version):
            sighting = replace(before, seen_s=now_s)
        else:
            term_s = Content.decode(node.data, name).term_ms / 1000
            sighting = _Sighting(node.token, node.version, term_s, now_s, now_s)
        self._sightings[name] = sighting
        return sighting
