"""A client's way to the store: the checker sees what it does, and it can fail at every operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import Any

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.nodes import (
    Node,
    NodeGoneError,
    Nodes,
    NodeTakenError,
    NodeVersionError,
)
from tests.model.checker import Checker, ViolationError

_MOST_OPERATIONS = 2000


class Fault(StrEnum):
    DROPPED = "dropped"  # not carried out, and not answered
    UNANSWERED = "unanswered"  # carried out, and not answered
    TWICE = "twice"  # delivered twice; the second answer arrives
    STALLED = "stalled"  # the client stops between the answer and what it does next
    KILLED = "killed"  # the client dies there


class KilledError(Exception):
    """The client's process is no more."""


class Wire:
    """Nodes over other nodes. ``deed`` is what the client is about, for the checker."""

    def __init__(self, nodes: Nodes, checker: Checker, client: object) -> None:
        self.client = client
        self.deed: tuple[str, object] = ("", None)
        self._nodes = nodes
        self._checker = checker
        self._fault: Fault | None = None
        self._skip = 0
        self._meanwhile: Callable[[], None] = lambda: None
        self._operations = 0
        self.is_away = False

    def arm(
        self, fault: Fault | None, skip: int = 0, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Have the fault come with the next operation but ``skip``."""
        self._fault, self._skip, self._meanwhile = fault, skip, meanwhile

    def begin(self, deed: tuple[str, object]) -> None:
        self.deed, self._operations = deed, 0

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        def do() -> Node:
            node = self._nodes.create(name, data, requires)
            self._checker.created(self.client, name, data, requires, node, self.deed)
            return node

        return self._deliver(do)

    def names(self) -> frozenset[str]:
        def do() -> frozenset[str]:
            names = self._nodes.names()
            self._checker.named(self.client, names)
            return names

        return self._deliver(do)

    def read(self, names: Iterable[str]) -> dict[str, Node]:
        return self._deliver(partial(self._nodes.read, list(names)))

    def latest(self, names: Iterable[str]) -> dict[str, Node]:
        return self._deliver(partial(self._nodes.latest, list(names)))

    def write(self, name: str, data: bytes, version: int) -> int:
        def do() -> int:
            written = self._nodes.write(name, data, version)
            self._checker.wrote(self.client, name, data, self.deed)
            return written

        return self._deliver(do)

    def delete(self, name: str, version: int) -> None:
        def do() -> None:
            self._nodes.delete(name, version)
            self._checker.deleted(name, self.deed)

        return self._deliver(do)

    def watch(self, name: str, wake: Callable[[], None]) -> bool:
        return self._deliver(partial(self._nodes.watch, name, wake))

    def close(self) -> None:
        """Leave the store to the others."""

    def _deliver(self, do: Callable[[], Any]) -> Any:
        self._operations += 1
        if self._operations > _MOST_OPERATIONS:
            raise ViolationError(f"{self.deed} does not come to an end")
        fault = self._due()
        if fault is Fault.DROPPED or self.is_away:
            raise LockUnreachableError("dropped")
        try:
            answer = do()
            if fault is Fault.TWICE:
                answer = do()
        except (NodeGoneError, NodeVersionError, NodeTakenError):
            self._answer(fault)
            raise
        self._answer(fault)
        return answer

    def _answer(self, fault: Fault | None) -> None:
        if fault is Fault.UNANSWERED:
            raise LockUnreachableError("unanswered")
        if fault is Fault.KILLED:
            raise KilledError
        if fault is Fault.STALLED:
            self._meanwhile()

    def _due(self) -> Fault | None:
        if self._fault is None:
            return None
        if self._skip:
            self._skip -= 1
            return None
        fault, self._fault = self._fault, None
        return fault
