"""Queues over a real ZooKeeper, each with its own session, and requests that tests make."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager

from kazoo.client import KazooClient

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore

TABLE = "s3://lake/trips"


class Queues:
    """Opens queues, and closes them all at the end."""

    def __init__(self):
        self._open = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for queue in self._open:
            queue.close()

    def open(self, access, root="/leases"):
        self._open.append(queue := Queue(ZookeeperStore(access, root)))
        return queue

    def at(self, hosts, root="/leases", timeout_s=10.0):
        return self.open(ZookeeperAccess(hosts, timeout_s), root)


def asks(run=None, ttl_ms=60_000, task=()):
    owner = Owner(("dag", run or uuid.uuid4().hex, *task))
    return Request(uuid.uuid4().hex, owner, (Scope.of(TABLE, None),), ttl_ms)


def wait_until_held(queue, ticket, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    woken = threading.Event()
    while not queue.status(ticket, woken.set).held:
        assert time.monotonic() < deadline, "not granted in time"
        woken.wait(0.5)
        woken.clear()


@contextmanager
def bare_client(hosts):
    client = KazooClient(hosts)
    client.start(timeout=15)
    try:
        yield client
    finally:
        client.stop()
        client.close()
