"""A client's connection to the store: reports to the checker, and can fail at every operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.store import (
    Node,
    NodeGoneError,
    NodeTakenError,
    NodeVersionError,
    Store,
    Version,
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
    """The client's process was killed."""


class Wire:
    """A store over another one. ``action`` is the client's current call, for the checker.

    Every second client sees no versions in a listing, as on ZooKeeper.
    """

    def __init__(self, store: Store, checker: Checker, client: tuple[int, int]) -> None:
        self.client = client
        self.action: tuple[str, object] = ("", None)
        self._store = store
        self._checker = checker
        self._fault: Fault | None = None
        self._skip = 0
        self._meanwhile: Callable[[], None] = lambda: None
        self._operations = 0
        self._listed: tuple[float, Mapping[str, Version | None]] | None = None
        self.is_away = False

    def arm(
        self, fault: Fault | None, skip: int = 0, meanwhile: Callable[[], None] = lambda: None
    ) -> None:
        """Make the fault happen after ``skip`` more operations."""
        self._fault, self._skip, self._meanwhile = fault, skip, meanwhile

    def begin(self, action: tuple[str, object]) -> None:
        self.action, self._operations = action, 0

    def create(self, name: str, data: bytes, requires: str | None = None) -> Node:
        def do() -> Node:
            self._listed = None
            node = self._store.create(name, data, requires)
            self._checker.created(self.client, name, data, requires, node, self.action)
            return node

        return self._deliver(do)

    def stamps(self, *, age_s: float = 0.0) -> Mapping[str, Version | None]:
        """Return a listing, which may be an earlier one if it may be old and no own change followed."""
        if self._listed and self._checker.now() - self._listed[0] < age_s:
            self._checker.counts["listings that were old"] += 1
            return self._listed[1]

        def do() -> Mapping[str, Version | None]:
            stamps = self._store.stamps()
            self._checker.named(self.client, stamps)
            stamps = stamps if self.client[0] % 2 else dict.fromkeys(stamps)
            self._listed = self._checker.now(), stamps
            return stamps

        return self._deliver(do)

    def read(self, names: Iterable[str], *, latest: bool = False) -> dict[str, Node]:
        return self._deliver(partial(self._store.read, list(names), latest=latest))

    def replace(self, name: str, data: bytes, version: Version) -> Version:
        def do() -> Version:
            self._listed = None
            written = self._store.replace(name, data, version)
            self._checker.wrote(self.client, name, data, self.action)
            return written

        return self._deliver(do)

    def delete(self, name: str, version: Version) -> None:
        def do() -> None:
            self._listed = None
            self._store.delete(name, version)
            self._checker.deleted(name, self.action)

        return self._deliver(do)

    def on_delete(self, name: str, wake: Callable[[], None]) -> bool:
        return self._deliver(partial(self._store.on_delete, name, wake))

    def close(self) -> None:
        """Do nothing: the others still use the store."""

    def _deliver(self, do: Callable[[], Any]) -> Any:
        self._operations += 1
        if self._operations > _MOST_OPERATIONS:
            raise ViolationError(f"{self.action} does not come to an end")
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
