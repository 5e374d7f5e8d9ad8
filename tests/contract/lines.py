"""Lines over one store, each with a clock that a test moves, on a way that loses answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.metastore.locks import Locks
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from airflow_occ_provider.leases.nodes import Nodes
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope

A, B = "s3://lake/a", "s3://lake/b"
SHARED = (Scope.of(A, None, Mode.SHARED),)
WHOLE = (Scope.of(A, None),)
_ids = itertools.count()
POLL_S = 0.2

STORES = ("memory", "zookeeper")
METASTORE = "metastore"
# A metastore removes the dead itself, by its own clock alone: tests.real.test_lease_metastore.
where_waiters_remove_the_dead = pytest.mark.parametrize("backend", STORES, indirect=True)


class Clock:
    def __init__(self) -> None:
        self.s = 50.0

    def __call__(self) -> float:
        return self.s


class Lossy:
    """Raises at an operation, after it was carried out or instead; runs something before or after it."""

    def __init__(self, nodes: Nodes | Locks, called: Mapping[str, str] | None = None) -> None:
        self.nodes = nodes
        self._called = called or {}
        self.calls: list[str] = []
        self._lost: dict[str, bool] = {}
        self._before: dict[str, Callable[[], object]] = {}
        self._after: dict[str, Callable[[], object]] = {}

    def lose(self, operation: str, *, carried_out: bool) -> None:
        self._lost[self._called.get(operation, operation)] = carried_out

    def before(self, operation: str, do: Callable[[], object]) -> None:
        self._before[self._called.get(operation, operation)] = do

    def after(self, operation: str, do: Callable[[], object]) -> None:
        self._after[self._called.get(operation, operation)] = do

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls.append(operation)
            self._before.pop(operation, lambda: None)()
            carried_out = self._lost.pop(operation, None)
            answer = None if carried_out is False else getattr(self.nodes, operation)(*arguments)
            self._after.pop(operation, lambda: None)()
            if carried_out is not None:
                raise LockUnreachableError("the answer was lost")
            return answer

        return call


class Process(Queue):
    """A line, and all that a test holds of it."""

    def __init__(self, nodes: Nodes) -> None:
        self.way, self.clock = Lossy(nodes), Clock()
        super().__init__(self.way, self.clock)

    def forget(self) -> None:
        """Know nothing of the own requests any more, as another process does."""
        self.clock.s += 3.0
        self._own.clear()


class MetastoreProcess(MetastoreLeases):
    """The same over a metastore, whose locks go by its own clock."""

    def __init__(self, locks: Locks, timeout_s: int) -> None:
        called = {"create": "lock", "write": "lock", "watch": "check"}
        self.way, self.clock = Lossy(locks, called), Clock()
        super().__init__(self.way, timeout_s * 1000, poll_s=POLL_S, clock=self.clock)

    def forget(self) -> None:
        """Nothing is known but what the metastore says."""


@dataclass
class Backend:
    process: Callable[[], Process | MetastoreProcess]


def part(*partitions: str, table: str = A) -> tuple[Scope, ...]:
    return (Scope.of(table, partitions),)


def ask(
    run: str,
    *below: str,
    scopes: Iterable[Scope] = WHOLE,
    name: str = "",
    label: str = "",
    ttl_ms: int = 3000,
    site: str = "",
    attempt: int = 0,
    instead_of: Iterable[str] = (),
) -> Request:
    owner = Owner(("dag", run, *below), label, site)
    request_id = name or f"q{next(_ids)}"
    return Request(request_id, owner, tuple(scopes), ttl_ms, attempt, tuple(instead_of))


def holds(line: Queue, ticket: Ticket) -> bool:
    return line.status(ticket).held


def waits_for(line: Queue, ticket: Ticket) -> list[str]:
    return [blocker.queued.request.id for blocker in line.status(ticket).blockers]


def look_until_held(line: Process, ticket: Ticket, seconds: float) -> bool:
    """Let the time of one process pass, in which it looks once in a second."""
    for _ in range(round(seconds)):
        line.clock.s += 1.0
        if holds(line, ticket):
            return True
    return False
