"""A client's server of an ensemble, which may be behind the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_occ_provider.leases.memory import MemoryNodes
from airflow_occ_provider.leases.nodes import Node


class Follower:
    """Nodes as one server shows them; while it is behind, plain reads are of the past.

    As in ZooKeeper, a change goes to the leader and is answered when this server has it too, a sync
    waits for what the others know, and a watch fires when this server learns of the deletion.
    """

    def __init__(self, leader: MemoryNodes) -> None:
        self._leader = leader
        self._past: dict[str, Node] | None = None
        self._held_back: list[Callable[[], None]] = []

    @property
    def is_behind(self) -> bool:
        return self._past is not None

    def fall_behind(self) -> None:
        if self._past is None:
            self._past = self._leader.read(self._leader.names())

    def catch_up(self) -> None:
        self._past = None
        held_back, self._held_back = self._held_back, []
        for wake in held_back:
            wake()

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        self.catch_up()
        return self._leader.create(name, data, requires)

    def names(self) -> frozenset[str]:
        self.catch_up()
        return self._leader.names()

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        if self._past is None:
            return self._leader.read(names)
        return {name: self._past[name] for name in names if name in self._past}

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        self.catch_up()
        return self._leader.latest(names)

    def write(self, name: str, data: bytes, version: int) -> int:
        self.catch_up()
        return self._leader.write(name, data, version)

    def delete(self, name: str, version: int) -> None:
        self.catch_up()
        self._leader.delete(name, version)

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        def fire() -> None:
            if self._past is None:
                wake()
            else:
                self._held_back.append(wake)

        if self._past is None or name not in self._past:
            return self._past is None and self._leader.watch(name, fire)
        if not self._leader.watch(name, fire):
            self._held_back.append(wake)
        return True

    def close(self) -> None:
        """Leave the leader to the others."""
