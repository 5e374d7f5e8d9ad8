"""A client's server of an ensemble, which may lag behind the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from airflow_occ_provider.leases.store import Node, Version
from tests.support.memory_store import MemoryStore


class Follower:
    """A store as one server shows it; while it lags, plain reads return an old state.

    As in ZooKeeper, a change goes to the leader and is answered once this server has it too, a sync
    waits for the others' state, and a watch fires when the deletion reaches this server.
    """

    def __init__(self, leader: MemoryStore) -> None:
        self._leader = leader
        self._past: dict[str, Node] | None = None
        self._held_back: list[Callable[[], None]] = []

    @property
    def is_behind(self) -> bool:
        return self._past is not None

    def fall_behind(self) -> None:
        if self._past is None:
            self._past = self._leader.read(self._leader.stamps())

    def catch_up(self) -> None:
        self._past = None
        held_back, self._held_back = self._held_back, []
        for wake in held_back:
            wake()

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        self.catch_up()
        return self._leader.create(name, data, requires)

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        self.catch_up()
        return self._leader.stamps()

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        if latest:
            self.catch_up()
        if self._past is None:
            return self._leader.read(names)
        return {name: self._past[name] for name in names if name in self._past}

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        self.catch_up()
        return self._leader.replace(name, data, version)

    def delete(self, name: str, version: Version) -> None:
        self.catch_up()
        self._leader.delete(name, version)

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        def fire() -> None:
            if self._past is None:
                wake()
            else:
                self._held_back.append(wake)

        if self._past is None or name not in self._past:
            return self._past is None and self._leader.on_delete(name, fire)
        if not self._leader.on_delete(name, fire):
            self._held_back.append(wake)
        return True

    def close(self) -> None:
        """Do nothing: the others still use the leader."""
