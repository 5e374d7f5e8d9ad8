"""What a sweep of the queue asks of the store."""

from __future__ import annotations

from collections import Counter

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.testing.queues import SHARED, ask
from tests.support.memory_store import MemoryStore


class CountingStore(MemoryStore):
    """A store that counts its listings."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def stamps(self, *, age_s=0.0):
        self.calls["stamps"] += 1
        return super().stamps()


class Clock:
    s = 0.0

    def __call__(self):
        return self.s


def test_the_sweeps_of_a_period_share_one_listing():
    store, clock = CountingStore(), Clock()
    queue = Queue(store, clock)
    tickets = [queue.request(ask(f"r{number}", scopes=SHARED)) for number in range(20)]
    store.calls.clear()
    for ticket in tickets:
        queue.sweep(ticket)
    assert store.calls["stamps"] == 1
    clock.s += ask("any").ttl_ms / 1000
    queue.sweep(tickets[0])
    assert store.calls["stamps"] == 2


def test_a_sweep_does_not_wait_for_the_listing_of_another_thread():
    queue = Queue(CountingStore(), Clock())
    ticket = queue.request(ask("r1", scopes=SHARED))
    with queue._reader._sharing:
        queue.sweep(ticket)
