"""A holder is stopped until a rival was granted, and goes on: what does it say of its lease?

kazoo's own ``Lock`` is the control: the check that a line passes must find it wrong.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.zookeeper.client import Access
from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes
from tests.real.lease_holder import asked

pytestmark = pytest.mark.real
WATCHED_S = 2.0


class Holder:
    """A process that holds, and what it said."""

    def __init__(self, kind: str, hosts: str, path: str) -> None:
        self.said: list[dict[str, object]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.real.lease_holder", kind, hosts, path],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def wait_until_held(self) -> None:
        deadline = time.monotonic() + 30
        while not any(one["held"] for one in list(self.said)):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        self.process.stdout.close()

    def _read(self) -> None:
        for said in self.process.stdout:
            if said.endswith("\n"):
                self.said.append(json.loads(said))


@contextmanager
def holder(kind, hosts, path):
    one = Holder(kind, hosts, path)
    try:
        one.wait_until_held()
        yield one
    finally:
        one.end()


def said_while_another_held(one, granted_s):
    """What the holder said, from its going on until the rival's lease ends."""
    one.signal(signal.SIGCONT)
    time.sleep(WATCHED_S)
    after = [said for said in list(one.said) if said["at_s"] > granted_s]
    assert len(after) > 10
    return after


def held_beside_another(said):
    """The check: nobody says that he holds what another one was granted."""
    return [one for one in said if one["held"]]


@pytest.mark.timeout(90)
def test_the_control_says_held_while_another_was_granted(embedded_zookeeper):
    path = f"/control/{uuid.uuid4()}"
    client = KazooClient(hosts=embedded_zookeeper.hosts, timeout=10)
    client.start(timeout=15)
    try:
        with holder("kazoo", embedded_zookeeper.hosts, path) as one:
            one.signal(signal.SIGSTOP)
            rival = client.Lock(path)
            assert rival.acquire(timeout=30)
            said = said_while_another_held(one, time.monotonic())
            assert held_beside_another(said) == said
            rival.release()
    finally:
        client.stop()
        client.close()


@pytest.mark.timeout(90)
def test_a_line_never_does(embedded_zookeeper):
    path = f"/control/{uuid.uuid4()}"
    line = Queue(ZookeeperNodes(Access(embedded_zookeeper.hosts), path))
    try:
        with holder("line", embedded_zookeeper.hosts, path) as one:
            ticket = line.request(asked("rival"))
            assert not line.status(ticket).held
            one.signal(signal.SIGSTOP)
            deadline = time.monotonic() + 30
            while not line.status(ticket).held:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            said = said_while_another_held(one, time.monotonic())
            assert {one["call"] for one in said} == {"status", "ensure_held", "renew"}
            assert held_beside_another(said) == []
            line.ensure_held(ticket)
    finally:
        line.close()
