"""What the queue of a bucket saves: looks that calls share, writes that carry many renewals, pauses."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.ledger import _Watch
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.storage import backend
from airflow_occ_provider.leases.storage.backend import StorageStore
from airflow_occ_provider.testing.queues import ask
from tests.support.memory_object import Memory

POLL_S, LONG_S = 15.0, 60.0
TTL_MS = 180_000_000


@pytest.fixture
def shared():
    return Memory()


@pytest.fixture
def store(shared):
    return StorageStore(shared, POLL_S, 2 * LONG_S, gather_s=LONG_S)


@pytest.fixture
def other(shared):
    return StorageStore(shared, POLL_S)


def make_old(store):
    store._ledger.seen_s -= POLL_S


def count(shared, call):
    before = shared.reads, shared.writes
    answer = call()
    return answer, (shared.reads - before[0], shared.writes - before[1])


def test_a_renewal_and_the_status_after_it_cost_a_read_and_a_write(shared, store, other):
    waiter, holder, wake = Queue(store), Queue(other), threading.Event().set
    held = holder.request(ask("r1", ttl_ms=TTL_MS))
    ticket = waiter.request(ask("r2", ttl_ms=TTL_MS))
    waiter.status(ticket, wake)
    make_old(store)
    holder.renew(held)
    assert count(shared, lambda: waiter.renew(ticket)) == (None, (1, 1))
    status, cost = count(shared, lambda: waiter.status(ticket, wake, age_s=LONG_S))
    assert (status.held, cost) == (False, (0, 0))
    assert store._watches._until_due_s() > POLL_S - 5, "the look of the renewal counts"
    store.close()


def test_a_holder_costs_a_read_and_a_write_each_period(shared, store):
    queue = Queue(store)
    ticket = queue.request(ask("r1", ttl_ms=TTL_MS))
    make_old(store)

    def tend():
        queue.renew(ticket)
        queue.sweep(ticket)

    assert count(shared, tend)[1] == (1, 1)


def test_a_call_without_an_age_looks_in_any_case(shared, store, other):
    assert store.stamps() == {}
    node = other.create("n", b"")
    assert store.stamps(age_s=LONG_S) == {}
    assert store.stamps() == {"n": node.version}


def test_the_first_changes_are_made_at_once(shared, store):
    version = store.create("n", b"").version
    for _ in range(backend._BURST - 1):
        version = store.replace("n", b"", version)
    assert shared.writes == backend._BURST


@pytest.fixture
def busy(shared, store):
    """The nodes of a store that has written a lot."""
    nodes = {name: store.create(name, b"").version for name in map(str, range(backend._FULL))}
    shared.writes = 0
    return nodes


def test_renewals_of_many_threads_go_in_one_write(shared, store, busy):
    with ThreadPoolExecutor(len(busy)) as pool:
        versions = list(pool.map(lambda name: store.replace(name, b"", busy[name]), busy))
    assert shared.writes == 1
    assert store.stamps() == dict(zip(busy, versions, strict=True))


def test_a_change_that_is_urgent_takes_the_others_along(shared, store, busy):
    with ThreadPoolExecutor(3) as pool:
        late = [pool.submit(store.replace, name, b"2", busy[name]) for name in "012"]
        while len(store._ledger._changes) < len(late):
            assert not any(one.done() for one in late)
        store.delete("3", busy["3"])
    assert shared.writes == 1
    assert [store.stamps()[name] for name in "012"] == [one.result() for one in late]


def test_any_look_wakes_a_waiter(shared, store, other):
    node, woken = store.create("n", b""), threading.Event()
    assert store.on_delete("n", woken.set)
    other.delete("n", node.version)
    assert not woken.is_set()
    assert store.stamps() == {}
    assert woken.is_set()
    store.close()


def test_a_deletion_that_was_seen_before_the_watch_is_set_wakes_too(store, other):
    node, woken = store.create("n", b""), threading.Event()
    revision = store._ledger.current().revision
    other.delete("n", node.version)
    assert store.stamps() == {}
    store._watches.add(_Watch("n", node.token, revision, woken.set))
    assert woken.is_set()


def test_an_outage_is_asked_seldom_by_all_threads_together_and_told_once(shared, caplog):
    store = StorageStore(shared, POLL_S, timeout_s=1.0)
    shared.is_away = True
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(16) as pool:
        failures = [pool.submit(store.stamps).exception for _ in range(16)]
        assert all(isinstance(one(), LockUnreachableError) for one in failures)
        assert shared.reads <= 24
        while store._ledger._backoff._failures < backend._TOLD_AFTER:
            with pytest.raises(LockUnreachableError):
                store.stamps()
        shared.is_away = False
        store.stamps()
        store.stamps()
    told = [record.getMessage() for record in caplog.records if record.name == backend.__name__]
    assert len(told) == 2
    assert told[0] == "memory://queue does not answer; it is asked again: away"
    assert told[1].startswith("memory://queue answers again after ")
