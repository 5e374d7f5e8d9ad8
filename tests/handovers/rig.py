"""Runs cases one after the other, on one real ZooKeeper."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from unittest import mock

from airflow_occ_provider.leases.line import Line
from airflow_occ_provider.leases.zookeeper.client import Access
from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes
from tests.handovers.case import BrokenError, Case, connection
from tests.handovers.clock import Clock, VirtualLoop

_ROOT = "/handovers"


def hand_over(
    hosts: str, numbers: Sequence[int], seed: int, tell: Callable[[int], None] = lambda done: None
) -> tuple[Counter[str], list[BrokenError]]:
    """Run cases, and return what was seen and what was broken.

    :param hosts: of ZooKeeper.
    :param numbers: of the cases.
    :param seed: decides what happens in each.
    :param tell: called with the number of cases done.
    """
    counts: Counter[str] = Counter()
    broken: list[BrokenError] = []
    clock = Clock()
    loop = VirtualLoop(clock)
    nodes = ZookeeperNodes(Access(hosts), _ROOT)
    others = Line(nodes, clock.monotonic)
    try:
        with clock.everywhere(), mock.patch.dict(os.environ, connection(hosts, _ROOT)):
            for done, number in enumerate(numbers, 1):
                case = Case(number, seed, loop, nodes, others, counts)
                try:
                    loop.run_until_complete(case.run())
                except BrokenError as error:
                    broken.append(error)
                tell(done)
    finally:
        others.close()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    return counts, broken
