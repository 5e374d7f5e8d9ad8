"""Take a lease, and print again and again whether each call says that it is held.

``python -m tests.real.lease_holder kazoo|queue HOSTS PATH``, or ``metastore URIS DATABASE``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from kazoo.client import KazooClient

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks, MetastoreStore
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore

SESSION_S = 1.0
TTL_MS = 1500
METASTORE_LOCK_S = 30
_PAUSE_S = 0.02


def asked(run: str) -> Request:
    return Request(run, Owner(("dag", run)), (Scope.of("s3://lake/t", None),), TTL_MS)


def hold_kazoo(hosts: str, path: str) -> dict[str, Callable[[], bool]]:
    client = KazooClient(hosts=hosts, timeout=SESSION_S)
    client.start(timeout=15)
    lock = client.Lock(path)
    lock.acquire(timeout=15)
    return {"is_acquired": lambda: lock.is_acquired}


def hold_queue(hosts: str, path: str) -> dict[str, Callable[[], bool]]:
    return hold(Queue(ZookeeperStore(ZookeeperAccess(hosts, timeout_s=2.0), path)))


def hold_metastore(uris: str, database: str) -> dict[str, Callable[[], bool]]:
    locks = MetastoreLocks(MetastoreClient(MetastoreAccess(uris, timeout_s=2.0)), database)
    return hold(Queue(MetastoreStore(locks, METASTORE_LOCK_S)))


def hold(queue: Queue) -> dict[str, Callable[[], bool]]:
    ticket = queue.request(asked("holder"))

    def answered(call: Callable[[], object]) -> bool:
        try:
            return call() is not False
        except (LeaseLostError, LockUnreachableError):
            return False

    return {
        "status": lambda: answered(lambda: queue.status(ticket).held),
        "ensure_held": lambda: answered(lambda: queue.ensure_held(ticket)),
        "renew": lambda: answered(lambda: queue.renew(ticket)),
    }


def main() -> None:
    kind, hosts, path = sys.argv[1:]
    calls = {"kazoo": hold_kazoo, "queue": hold_queue, "metastore": hold_metastore}[kind](hosts, path)
    while True:
        for name, call in calls.items():
            held, at_s = call(), time.monotonic()
            print(json.dumps({"call": name, "held": held, "at_s": at_s}), flush=True)
        time.sleep(_PAUSE_S)


if __name__ == "__main__":
    main()
