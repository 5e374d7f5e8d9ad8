"""Runs cases one after the other, on one real ZooKeeper or in memory."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from unittest import mock

from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.store import Store
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from tests.handovers.case import BrokenError, Case, connection
from tests.handovers.clock import Clock, VirtualLoop
from tests.support.memory_store import MemoryStore

_ROOT = "/handovers"


def hand_over(
    hosts: str, numbers: Iterable[int], seed: int, tell: Callable[[int], None] = lambda done: None
) -> tuple[Counter[str], list[BrokenError]]:
    """Run cases on ZooKeeper, and return the counts and the broken promises.

    :param hosts: of ZooKeeper.
    :param numbers: of the cases.
    :param seed: decides what happens in each.
    :param tell: called with the number of cases done.
    """
    counts: Counter[str] = Counter()
    broken = []
    nodes = ZookeeperStore(ZookeeperAccess(hosts), _ROOT)
    try:
        for done, error in enumerate(_run(nodes, hosts, numbers, seed, counts, Queue, Clock()), 1):
            broken += [error] if error else []
            tell(done)
    finally:
        nodes.close()
    return counts, broken


def hand_over_in(
    open_store: Callable[[], Store],
    numbers: Iterable[int],
    seed: int,
    tell: Callable[[int], None] = lambda done: None,
) -> tuple[Counter[str], list[BrokenError]]:
    """Do the same on other stores.

    :param open_store: opens one, as each process does.
    """
    clock, counts, broken = Clock(), Counter[str](), []
    hooks = mock.patch.object(
        HudiZookeeperLockHook, "leases", side_effect=lambda: Queue(open_store(), clock.monotonic)
    )
    with hooks:
        cases = _run(open_store(), "127.0.0.1:1", numbers, seed, counts, Queue, clock)
        for done, error in enumerate(cases, 1):
            broken += [error] if error else []
            tell(done)
    return counts, broken


def first_broken(queue: type[Queue], numbers: Iterable[int], seed: int) -> BrokenError | None:
    """Run cases on a store in memory until one breaks, and return that.

    :param queue: the class under test; a mutant must break a case.
    :param numbers: of the cases.
    :param seed: decides what happens in each.
    """
    nodes, clock = MemoryStore(), Clock()
    in_memory = mock.patch.object(
        HudiZookeeperLockHook, "leases", side_effect=lambda: queue(nodes, clock.monotonic)
    )
    with in_memory:
        cases = _run(nodes, "127.0.0.1:1", numbers, seed, Counter(), queue, clock)
        try:
            return next(filter(None, cases), None)
        finally:
            cases.close()


def _run(
    store: Store,
    hosts: str,
    numbers: Iterable[int],
    seed: int,
    counts: Counter[str],
    queue: type[Queue],
    clock: Clock,
) -> Generator[BrokenError | None]:
    loop = VirtualLoop(clock)
    try:
        with clock.everywhere(), mock.patch.dict(os.environ, connection(hosts, _ROOT)):
            others = queue(store, clock.monotonic)
            for number in numbers:
                try:
                    loop.run_until_complete(Case(number, seed, loop, store, others, counts).run())
                except BrokenError as error:
                    yield error
                else:
                    yield None
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
