"""Many clients on one lease database at once, each a thread with several processes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

from airflow_occ_provider.leases.ledger import LedgerStore
from airflow_occ_provider.leases.metastore.lock_log import LockLog, MetastoreLocks, MetastoreStore
from airflow_occ_provider.leases.queue import Queue
from tests.crowd.client import A, B, Client
from tests.crowd.locks import Lossy
from tests.crowd.witness import ViolationError, Witness

_POLL_S = 0.05


def run(
    connect: Callable[[], MetastoreLocks],
    lifetime_s: float,
    *,
    ttl_s: float,
    people: int,
    seconds: float,
    seed: int,
    log: type[LockLog] = LockLog,
) -> Counter[str]:
    """Run many clients for some seconds; return how often each thing happened.

    :param connect: connects to the locks, once for each process.
    :param lifetime_s: seconds after which a lock without heartbeats is dropped.
    :param ttl_s: seconds without a renewal after which a request expires.
    :param log: the log of each process.
    :raises ViolationError: if a promise was broken.
    """
    witness, connections, clients = Witness(ttl_s), [], []
    for number in range(people):
        mine = [Lossy(connect(), f"{seed}-{number}-{process}") for process in range(3)]
        connections += mine
        processes = [_queue(connection, lifetime_s, log) for connection in mine]
        clients.append(Client(f"p{number}", processes, ttl_s, witness, seed))
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
    _wait_until_empty(connect(), lifetime_s, ttl_s)
    witness.counts["calls"], witness.counts["answers lost"] = (
        sum(connection.calls for connection in connections),
        sum(connection.lost for connection in connections),
    )
    for connection in connections:
        connection.close()
    return witness.counts


def _queue(locks: Any, lifetime_s: float, log: type[LockLog]) -> Queue:
    return Queue(LedgerStore(log(locks, lifetime_s), _POLL_S))


def _wait_until_empty(locks: MetastoreLocks, lifetime_s: float, ttl_s: float) -> None:
    """Wait until the requests of dead processes have expired: nothing may keep them alive."""
    with closing(Queue(MetastoreStore(locks, lifetime_s, _POLL_S))) as queue:
        deadline = time.monotonic() + 4 * ttl_s + 30
        while any(queue.live_requests(table) for table in (A, B)):
            if time.monotonic() > deadline:
                raise ViolationError(f"there are requests left: {queue.requests()}")
            time.sleep(ttl_s / 6)
