"""Many clients on one lease database at once, each a thread with several processes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from tests.crowd.client import Client
from tests.crowd.locks import Lossy
from tests.crowd.witness import ViolationError, Witness

_POLL_S = 0.05


def run(
    connect: Callable[[], MetastoreLocks],
    timeout_s: float,
    *,
    people: int,
    seconds: float,
    seed: int,
    service: type[MetastoreLeases] = MetastoreLeases,
) -> Counter[str]:
    """Run many clients for some seconds; return how often each thing happened.

    :param connect: connects to the locks, once for each process.
    :param timeout_s: seconds after which a lock without heartbeats is dropped.
    :raises ViolationError: if a promise was broken.
    """
    witness, connections, clients = Witness(timeout_s), [], []
    for number in range(people):
        mine = [Lossy(connect(), f"{seed}-{number}-{process}") for process in range(3)]
        connections += mine
        processes = [service(connection, round(timeout_s * 1000), poll_s=_POLL_S) for connection in mine]
        clients.append(Client(f"p{number}", processes, timeout_s, witness, seed))
    until_s = time.monotonic() + seconds
    threads = [
        threading.Thread(target=witness.run_checked, args=(lambda one=one: one.work(until_s),))
        for one in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 180)
    witness.raise_first()
    if any(thread.is_alive() for thread in threads):
        raise ViolationError("a client waits forever")
    _wait_until_empty(connections[0], timeout_s)
    witness.counts["calls"], witness.counts["answers lost"] = (
        sum(connection.calls for connection in connections),
        sum(connection.lost for connection in connections),
    )
    for connection in connections:
        connection.close()
    return witness.counts


def _wait_until_empty(connection: Lossy, timeout_s: float) -> None:
    """Wait until the locks of dead processes are dropped: nothing may keep them alive."""
    deadline = time.monotonic() + 2 * timeout_s + 10
    while time.monotonic() < deadline:
        if not connection.locks.rows():
            return
        time.sleep(0.1)
    raise ViolationError(f"there are locks left: {connection.locks.rows()}")
