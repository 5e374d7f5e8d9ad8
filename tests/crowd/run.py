"""A crowd on one lease database: everybody at once, each a thread with processes of its own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from airflow_occ_provider.leases.metastore.locks import Locks
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from tests.crowd.locks import Lossy
from tests.crowd.person import Person
from tests.crowd.witness import ViolationError, Witness

_POLL_S = 0.05


def run(
    opened: Callable[[], Locks],
    timeout_s: float,
    *,
    people: int,
    seconds: float,
    seed: int,
    service: type[MetastoreLeases] = MetastoreLeases,
) -> Counter[str]:
    """Let a crowd be at it for some seconds; return what happened how often.

    :param opened: connects to the locks, once for each process.
    :param timeout_s: after which they are dropped without heartbeats.
    :raises ViolationError: where a promise was broken.
    """
    witness, ways, everybody = Witness(timeout_s), [], []
    for number in range(people):
        mine = [Lossy(opened(), f"{seed}-{number}-{process}") for process in range(3)]
        ways += mine
        processes = [service(way, round(timeout_s * 1000), poll_s=_POLL_S) for way in mine]
        everybody.append(Person(f"p{number}", processes, timeout_s, witness, seed))
    until_s = time.monotonic() + seconds
    threads = [
        threading.Thread(target=witness.hears, args=(lambda one=one: one.live(until_s),))
        for one in everybody
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 180)
    witness.told_all()
    if any(thread.is_alive() for thread in threads):
        raise ViolationError("somebody waits for ever")
    _wait_until_empty(ways[0], timeout_s)
    witness.counts["calls"], witness.counts["answers lost"] = (
        sum(way.calls for way in ways),
        sum(way.lost for way in ways),
    )
    for way in ways:
        way.close()
    return witness.counts


def _wait_until_empty(way: Lossy, timeout_s: float) -> None:
    """What the dead left is dropped, and nobody keeps it alive."""
    deadline = time.monotonic() + 2 * timeout_s + 10
    while time.monotonic() < deadline:
        if not way.locks.rows():
            return
        time.sleep(0.1)
    raise ViolationError(f"there are locks left: {way.locks.rows()}")
