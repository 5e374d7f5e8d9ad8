"""A holder is paused until a rival is granted, and resumes: does it still say that it holds?

kazoo's own ``Lock`` is the control: the check that the queue passes must find it wrong.
"""

from __future__ import annotations

import time
import uuid

import pytest
from kazoo.client import KazooClient

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from tests.real.lease_holder import asked
from tests.support.kazoo_holder import holder
from tests.support.suspended import resume, suspend

pytestmark = pytest.mark.real
WATCHED_S = 2.0


def said_while_another_held(one, granted_s):
    """Return what the holder says between its resumption and the end of the rival's lease."""
    resume(one.process.pid)
    time.sleep(WATCHED_S)
    after = [said for said in list(one.said) if said["at_s"] > granted_s]
    assert len(after) > 10
    return after


def held_beside_another(said):
    """Return each claim to hold what was granted to another process: there must be none."""
    return [one for one in said if one["held"]]


@pytest.mark.timeout(90)
def test_kazoos_lock_says_held_after_a_rival_was_granted(embedded_zookeeper):
    path = f"/control/{uuid.uuid4()}"
    client = KazooClient(hosts=embedded_zookeeper.hosts, timeout=10)
    client.start(timeout=15)
    try:
        with holder("kazoo", embedded_zookeeper.hosts, path) as one:
            suspend(one.process.pid)
            rival = client.Lock(path)
            assert rival.acquire(timeout=30)
            said = said_while_another_held(one, time.monotonic())
            assert held_beside_another(said) == said
            rival.release()
    finally:
        client.stop()
        client.close()


@pytest.mark.timeout(90)
def test_the_queue_never_says_held_after_a_rival_was_granted(embedded_zookeeper):
    path = f"/control/{uuid.uuid4()}"
    queue = Queue(ZookeeperStore(ZookeeperAccess(embedded_zookeeper.hosts), path))
    try:
        with holder("queue", embedded_zookeeper.hosts, path) as one:
            ticket = queue.request(asked("rival"))
            assert not queue.status(ticket).held
            suspend(one.process.pid)
            deadline = time.monotonic() + 30
            while not queue.status(ticket).held:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            said = said_while_another_held(one, time.monotonic())
            assert {one["call"] for one in said} == {"status", "ensure_held", "renew"}
            assert held_beside_another(said) == []
            queue.ensure_held(ticket)
    finally:
        queue.close()
