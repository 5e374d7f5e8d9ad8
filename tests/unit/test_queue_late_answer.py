"""A renewal whose answer comes after the end of the lease's term."""

from __future__ import annotations

import pytest

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.store import NodeVersionError
from airflow_occ_provider.testing.queues import ask
from tests.support.memory_store import MemoryStore

TTL_S = ask("any").ttl_ms / 1000


class SlowStore(MemoryStore):
    """A store whose answers to a write may take long.

    The clock and the expiry of the node stand for a process that was paused.
    """

    now_s = 0.0
    answer_s = 0.0
    expires = False

    def replace(self, name, data, version):
        written = super().replace(name, data, version)
        self.now_s += self.answer_s
        if self.expires:
            self.delete(name, written)
        return written


@pytest.fixture
def store():
    return SlowStore()


@pytest.fixture
def queue(store):
    return Queue(store, lambda: store.now_s)


def test_a_renewal_that_is_answered_after_a_rivals_grant_is_lost(store, queue):
    ticket = queue.request(ask("r1"))
    store.answer_s, store.expires = 2 * TTL_S, True
    with pytest.raises(LeaseLostError):
        queue.renew(ticket)


def test_a_renewal_that_is_answered_late_is_one_if_the_request_is_still_queued(store, queue):
    ticket = queue.request(ask("r1"))
    store.answer_s = 2 * TTL_S
    queue.renew(ticket)
    store.answer_s = 0.0
    assert queue.status(ticket).held


def test_a_store_that_always_answers_late_does_not_hold_a_status_up(store, queue):
    ticket = queue.request(ask("r1"))
    store.now_s += TTL_S
    store.answer_s = TTL_S
    with pytest.raises(LockUnreachableError, match=r"status of request .* each came too late .*Remedy"):
        queue.status(ticket)
    store.answer_s = 0.0
    assert queue.status(ticket).held


class ContendedStore(MemoryStore):
    """A store in which another process changes a node between each read and each write."""

    contended = False

    def _at(self, name, version):
        if self.contended:
            raise NodeVersionError(name)
        return super()._at(name, version)


@pytest.mark.parametrize("call", ["renew", "adopt", "release", "evict", "repeat"])
def test_every_call_ends_although_others_change_the_request_all_the_time(call):
    store = ContendedStore()
    queue, other = Queue(store), Queue(store)
    ticket = queue.request(asked := ask("r1"))
    calls = {
        "renew": lambda: queue.renew(ticket),
        "adopt": lambda: other.adopt(ticket),
        "release": lambda: queue.release(ticket),
        "evict": lambda: other.evict(queue.requests()[0]),
        "repeat": lambda: other.request(asked),
    }
    store.contended = True
    with pytest.raises(LockUnreachableError, match="Remedy"):
        calls[call]()
