"""Requests keep their places while the lock service is down or lags: a slice of ``tests.outages``."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from airflow_occ_provider.testing.queues import ask
from tests.outages.away import LAG_S, stopped
from tests.outages.lagging import LaggingEnsemble
from tests.outages.rig import TTL_MS, Crowd

pytestmark = pytest.mark.real


def test_no_waiter_that_retries_loses_its_place_in_an_outage(tmp_path):
    with EmbeddedZookeeper(tmp_path, free_port()) as server:
        crowd = Crowd(server.hosts, server.hosts, waiters=20)
        asyncio.run(crowd.run(lambda: stopped(server), seconds=2 * TTL_MS / 1000, times=1))
    assert crowd.counts["outages"] == 1
    assert crowd.counts["event granted"] == 2


def test_a_request_that_a_lagging_follower_has_not_seen_yet_is_not_lost(tmp_path):
    with LaggingEnsemble(tmp_path) as servers, ExitStack() as stack:

        def queue(server):
            opened = Queue(ZookeeperStore(ZookeeperAccess(server.hosts, 8), "/leases"))
            stack.callback(opened.close)
            return opened

        here, there = queue(servers.leader), queue(servers.follower)
        servers.hold_back(LAG_S)
        for number in range(5):
            ticket = here.request(ask(f"r{number}"))
            there.renew(ticket)
            taken = there.adopt(ticket)
            again = here.adopt(taken)
            assert there.release(again)
        assert here.requests() == ()
