"""The queue of a bucket while a share of the requests to its S3 server fails, and while all do."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from obstore.store import S3Store

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.storage.backend import StorageStore
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.testing.lease_store import (  # noqa: F401 - the fixtures of the contract
    open_queue,
    other,
    queue,
    second,
    store,
)
from airflow_occ_provider.testing.lost_answers import LostAnswerContract
from airflow_occ_provider.testing.queue_contract import ExpiryContract, QueueContract
from airflow_occ_provider.testing.store_contract import StoreContract
from tests.real.queues import asks
from tests.services.clouds import NEEDS_VERSITYGW
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.stores import BUCKET

pytestmark = [pytest.mark.real, pytest.mark.nightly, NEEDS_VERSITYGW]
PERCENT, SEED = 5.0, 7
POLL_S, TTL_MS = 0.3, 30_000
WORKERS, EACH = 8, 4
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def proxy(versitygw):
    with FaultyProxy(versitygw.url, seed=SEED, percent=PERCENT, slow_s=1.0) as running:
        yield running
    print(f"of {len(running.counted())} requests failed {running.faults.total()}: {running.faults}")


@pytest.fixture
def open_object(versitygw, proxy):
    """Return a function that opens the same object as another process does."""
    key = f"{uuid.uuid4()}/queue.json"

    def open_one():
        bucket = S3Store(
            BUCKET,
            endpoint=proxy.url,
            region=versitygw.REGION,
            access_key_id=versitygw.KEY,
            secret_access_key=versitygw.SECRET,
            client_options={"allow_http": True, "timeout": "5s", "connect_timeout": "2s"},
            retry_config={"max_retries": 0},
        )
        return BucketObject(bucket, key, f"s3://{BUCKET}/{key}")

    return open_one


@pytest.fixture
def open_store(open_object):
    return lambda: StorageStore(open_object(), POLL_S)


class TestStore(StoreContract):
    pass


class TestQueue(QueueContract):
    pass


class TestExpiry(ExpiryContract):
    pass


class TestLostAnswers(LostAnswerContract):
    pass


class Crowd:
    """Workers that take turns at one table, each with a queue of its own."""

    def __init__(self, open_store):
        self._open_store = open_store
        self._mutex = threading.Lock()
        self.inside, self.most = 0, 0
        self.tokens: list[int] = []

    def work(self, number):
        process = Queue(self._open_store())
        try:
            for turn in range(EACH):
                self._take_turn(process, f"w{number}-{turn}")
        finally:
            process.close()

    def _take_turn(self, process, run):
        ticket = process.request(asks(run, TTL_MS))
        woken, deadline = threading.Event(), time.monotonic() + PATIENCE_S
        while not process.status(ticket, woken.set).held:
            assert time.monotonic() < deadline, "not granted in time"
            woken.wait(1.0)
            woken.clear()
            process.renew(ticket)
        with Keeper(process, ticket, TTL_MS) as keeper:
            with self._mutex:
                self.inside += 1
                self.most = max(self.most, self.inside)
                self.tokens.append(ticket.token)
            time.sleep(0.05)
            with self._mutex:
                self.inside -= 1
            keeper.refuse_if_lost()
        assert process.release(ticket), "the lease was lost"


def test_no_waiter_loses_its_place_and_no_holder_its_lease(open_store, proxy, caplog):
    caplog.set_level(logging.WARNING)
    crowd, started, before = Crowd(open_store), time.monotonic(), proxy.faults.total()
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(crowd.work, range(WORKERS)))
    took_s = time.monotonic() - started
    print(f"{WORKERS * EACH} turns in {took_s:.1f} s, {len(caplog.records)} warnings")
    assert crowd.most == 1
    assert crowd.tokens == sorted(crowd.tokens)  # first come, first served
    assert len(crowd.tokens) == WORKERS * EACH
    assert len(caplog.records) < proxy.faults.total() - before


def test_an_outage_costs_no_place_and_is_told_once(open_store, proxy, caplog):
    caplog.set_level(logging.INFO)
    proxy.percent = 0.0
    holder, waiter = Queue(open_store()), Queue(open_store())
    held, waiting = holder.request(asks("holder", TTL_MS)), waiter.request(asks("waiter", TTL_MS))
    assert holder.status(held).held
    with Keeper(holder, held, TTL_MS, usual_ttl_ms=3000) as keeper:
        proxy.kinds, proxy.percent = (Fault.ERROR_503, Fault.CUT_BEFORE), 100.0
        began = time.monotonic()
        with pytest.raises(LockUnreachableError, match="did not answer"):
            waiter.status(waiting)
        assert time.monotonic() - began < 30
        time.sleep(max(0.0, began + 15 - time.monotonic()))
        proxy.percent = 0.0
        deadline = time.monotonic() + 60
        while keeper._failure and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not keeper._failure
        keeper.refuse_if_lost()
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    print("\n".join(texts))
    assert not waiter.status(waiting).held
    assert holder.release(held)
    assert waiter.status(waiting).held
    assert sum("renewed" in text for text in texts) == 1
    assert sum("does not answer" in text for text in texts) <= 2  # each process once
    for one in (holder, waiter):
        one.close()
