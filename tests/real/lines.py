"""Lines over a real ZooKeeper, each with a session of its own, and what tests ask of them."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import contextmanager

from kazoo.client import KazooClient

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.client import Access
from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes

TABLE = "s3://lake/trips"


class Lines:
    """Opens lines, and closes them all at the end."""

    def __init__(self):
        self._open = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for line in self._open:
            line.close()

    def open(self, access, root="/leases"):
        self._open.append(line := Queue(ZookeeperNodes(access, root)))
        return line

    def at(self, hosts, root="/leases", timeout_s=10.0):
        return self.open(Access(hosts, timeout_s), root)


def asks(run=None, ttl_ms=60_000, task=()):
    owner = Owner(("dag", run or uuid.uuid4().hex, *task))
    return Request(uuid.uuid4().hex, owner, (Scope.of(TABLE, None),), ttl_ms)


def wait_until_held(line, ticket, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    woken = threading.Event()
    while not line.status(ticket, woken.set).held:
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
