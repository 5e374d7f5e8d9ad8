from __future__ import annotations

import threading
import time

import pytest

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.poller import Poller

POLL_S = 0.01


class There:
    """The locks that exist, and how often they were listed."""

    def __init__(self, *ids):
        self.ids, self.looks, self.failure = set(ids), 0, None

    def __call__(self):
        self.looks += 1
        if self.failure:
            raise self.failure
        return self.ids

    def looked(self, times=3):
        until, deadline = self.looks + times, time.monotonic() + 5
        while self.looks < until:
            assert time.monotonic() < deadline, "nothing polls"
            time.sleep(POLL_S / 2)


@pytest.fixture
def there():
    return There(1, 2, 3)


@pytest.fixture
def poller(there):
    poller = Poller(there, POLL_S)
    yield poller
    poller.close()


def threads():
    return [one for one in threading.enumerate() if one.name == "lease-poll" and one.is_alive()]


def test_a_waiter_is_woken_once_when_its_blocker_is_gone(there, poller):
    woken = threading.Semaphore(0)
    poller.watch(2, {2, 1}, woken.release)
    there.looked()
    assert not woken.acquire(blocking=False)
    there.ids = {2, 3}
    assert woken.acquire(timeout=5)
    assert not woken.acquire(timeout=5 * POLL_S)


def test_a_waiter_whose_own_lock_is_gone_is_woken_too(there, poller):
    woken = threading.Event()
    poller.watch(2, {2, 1}, woken.set)
    there.ids = {1, 3}
    assert woken.wait(5)


def test_nothing_polls_without_a_waiter(there, poller):
    woken = threading.Event()
    poller.watch(2, {2, 1}, woken.set)
    there.ids = set()
    assert woken.wait(5)
    for thread in threads():
        thread.join(5)
    looks = there.looks
    time.sleep(5 * POLL_S)
    assert there.looks == looks
    poller.watch(3, {3, 1}, woken.clear)
    there.looked(1)


def test_one_watch_at_a_time_and_none_for_a_forgotten_waiter(there, poller):
    woken, other = threading.Event(), threading.Event()
    poller.watch(2, {2, 1}, woken.set)
    poller.watch(2, {2, 3}, other.set)
    there.ids = {2, 3}
    there.looked()
    assert not woken.is_set()
    poller.forget(2)
    there.ids = set()
    there.looked(1)
    assert not other.wait(5 * POLL_S)


@pytest.mark.parametrize("failure", [LockUnreachableError("away"), RuntimeError("unexpected")])
def test_a_look_that_fails_is_done_again(there, poller, failure):
    woken = threading.Event()
    there.failure = failure
    poller.watch(2, {2, 1}, woken.set)
    there.looked()
    assert not woken.is_set()
    there.failure, there.ids = None, {2}
    assert woken.wait(5)


def test_a_waiter_that_cannot_be_woken_does_not_keep_others_from_waking(there, poller):
    def closed():
        raise RuntimeError("its loop is closed")

    woken = threading.Event()
    poller.watch(2, {2, 1}, closed)
    poller.watch(3, {3, 1}, woken.set)
    there.ids = {2, 3}
    assert woken.wait(5)
    woken.clear()
    there.ids = {1, 3}
    poller.watch(3, {3, 1}, woken.set)
    there.looked()
    there.ids = {3}
    assert woken.wait(5)


def test_a_closed_one_looks_no_more(there, poller):
    poller.watch(2, {2, 1}, lambda: None)
    there.looked()
    poller.close()
    time.sleep(3 * POLL_S)
    looks = there.looks
    poller.watch(3, {3, 1}, lambda: None)
    time.sleep(5 * POLL_S)
    assert there.looks == looks
