"""Queues for tests, with a clock that a test sets and a store that loses answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.leases.store import Store

A, B = "s3://lake/a", "s3://lake/b"
SHARED = (Scope.of(A, None, Mode.SHARED),)
WHOLE = (Scope.of(A, None),)
_ids = itertools.count()


class Clock:
    """A monotonic clock; a test sets its seconds."""

    def __init__(self) -> None:
        self.s = 50.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.s


class Lossy:
    """Calls another object; a test acts before, after or instead of a call.

    :param store: the other object, such as a ``Store``.
    :param called: the names of its methods, by the names of a store's; ``{}`` if they are the same.
    """

    def __init__(self, store: object, called: Mapping[str, str] | None = None) -> None:
        self.store: Any = store
        self._called = called or {}
        self.calls: list[str] = []
        self._lost: dict[str, bool] = {}
        self._before: dict[str, Callable[[], object]] = {}
        self._after: dict[str, Callable[[], object]] = {}

    def lose(self, call: str, *, carried_out: bool) -> None:
        """Raise at the next call of this name, after it was carried out or instead."""
        self._lost[self._called.get(call, call)] = carried_out

    def before(self, call: str, do: Callable[[], object]) -> None:
        """Do something before the next call of this name.

        ``read latest`` is a separate name.
        """
        self._before[self._called.get(call, call)] = do

    def after(self, call: str, do: Callable[[], object]) -> None:
        """Do something after the next call of this name."""
        self._after[self._called.get(call, call)] = do

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            name = "read latest" if options.get("latest") else method
            do = partial(getattr(self.store, method), *arguments, **options)
            self.calls.append(name)
            self._before.pop(name, lambda: None)()
            carried_out = self._lost.pop(name, None)
            answer = None if carried_out is False else do()
            self._after.pop(name, lambda: None)()
            if carried_out is not None:
                raise LockUnreachableError("the answer was lost")
            return answer

        return call


class LossyQueue(Queue):
    """One process's queue, with its ``clock`` and its ``way`` to the store.

    :param store: of the requests.
    """

    def __init__(self, store: Store) -> None:
        self.way, self.clock = Lossy(store), Clock()
        super().__init__(cast("Store", self.way), self.clock)

    def forget(self) -> None:
        """Discard what is known of the own requests, as another process starts."""
        self.clock.s += 3.0
        self._own_nodes._nodes.clear()


def part(*partitions: str, table: str = A) -> tuple[Scope, ...]:
    """Return the exclusive scope of some partitions of a table."""
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
    """Return a request of a run, or of a task ``below`` it; ``name`` is its id."""
    owner = Owner(("dag", run, *below), label, site)
    request_id = name or f"q{next(_ids)}"
    return Request(request_id, owner, tuple(scopes), ttl_ms, attempt, tuple(instead_of))


def holds(queue: Queue, ticket: Ticket) -> bool:
    """Return whether a request is held."""
    return queue.status(ticket).held


def waits_for(queue: Queue, ticket: Ticket) -> list[str]:
    """Return the ids of the requests that block a request."""
    return [blocker.queued.request.id for blocker in queue.status(ticket).blockers]


def check_until_held(queue: LossyQueue, ticket: Ticket, seconds: float) -> bool:
    """Check a request once a second of the queue's clock; return whether it is held."""
    for _ in range(round(seconds)):
        queue.clock.s += 1.0
        if holds(queue, ticket):
            return True
    return False
