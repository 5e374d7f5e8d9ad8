from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from airflow.sdk import BaseOperator

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.task.run import longest_absence_ms
from tests.support.memory_store import MemoryStore

TTL_MS = 300
PATIENCE_S = 120


class Away(MemoryStore):
    """A store that can be away."""

    away = False
    refused = 0

    def replace(self, name, data, version):
        if self.away:
            self.refused += 1
            raise LockUnreachableError("away", remedy="wait")
        return super().replace(name, data, version)


@pytest.fixture
def nodes():
    return Away()


@pytest.fixture
def held(nodes):
    line = Queue(nodes)
    ticket = line.request(Request("i", Owner(("d", "r", "t")), (Scope("/t"),), TTL_MS))
    assert line.status(ticket).held
    return line, ticket


def version(nodes, ticket):
    return nodes.read([ticket.name])[ticket.name].version


def is_lost(keeper):
    until_s = time.monotonic() + PATIENCE_S
    while not keeper.lost and time.monotonic() < until_s:
        time.sleep(0.02)
    return keeper.lost is not None


def test_a_lease_that_is_lost_already_is_not_worked_under(nodes, held):
    line, ticket = held
    Queue(nodes).evict(line.requests()[0])
    with pytest.raises(LeaseLostError), Keeper(line, ticket, TTL_MS):
        raise AssertionError("not reached")


def test_it_renews_for_as_long_as_the_block_runs(nodes, held):
    line, ticket = held
    with Keeper(line, ticket, TTL_MS) as keeper:
        reached = threading.Event()
        while version(nodes, ticket) < 3:
            reached.wait(0.02)
        keeper.refuse_if_lost()
    after = version(nodes, ticket)
    reached.wait(TTL_MS / 1000)
    assert version(nodes, ticket) == after


def test_a_lost_lease_raises_at_each_check(nodes, held):
    line, ticket = held
    with Keeper(line, ticket, TTL_MS) as keeper:
        Queue(nodes).evict(line.requests()[0])
        assert is_lost(keeper)
    with pytest.raises(LeaseLostError, match="it was removed"):
        keeper.refuse_if_lost()


def test_the_log_says_which_person_released_the_lease(nodes, held, caplog):
    line, ticket = held
    with Keeper(line, ticket, TTL_MS, on_lost="the driver is ended") as keeper:
        (request,) = line.requests()
        Queue(nodes).revoke(request, "ann@node at noon")
        assert is_lost(keeper)
    assert "it was released by force by ann@node at noon; the driver is ended." in caplog.text


def test_a_lock_service_that_is_away_for_longer_than_the_term_may_have_given_it_away(nodes, held):
    line, ticket = held
    with Keeper(line, ticket, TTL_MS) as keeper:
        nodes.away = True
        assert is_lost(keeper)
        with pytest.raises(LeaseLostError, match=r"not be renewed within 0\.3 s and .*away"):
            keeper.refuse_if_lost()


def test_a_renewal_that_hangs_does_not_hide_the_loss(nodes, held, monkeypatch):
    line, ticket = held
    go_on = threading.Event()
    with Keeper(line, ticket, TTL_MS) as keeper:
        monkeypatch.setattr(line, "renew", lambda ticket, ttl_ms: go_on.wait(PATIENCE_S))
        assert is_lost(keeper)
        with pytest.raises(LeaseLostError, match="the renewal hangs"):
            keeper.refuse_if_lost()
        go_on.set()


def hanging_renewal(loss):
    """Return a renewal that waits, then tells of a loss; its begin, and what lets it go on."""
    is_renewing, go_on = threading.Event(), threading.Event()

    def renew(ticket, ttl_ms):
        is_renewing.set()
        go_on.wait(PATIENCE_S)
        raise LeaseLostError(loss, remedy="none")

    return renew, is_renewing, go_on


def test_a_renewal_that_hangs_until_after_the_release_is_no_loss(held, monkeypatch, caplog):
    line, ticket = held
    renew, is_renewing, go_on = hanging_renewal("it was released")
    monkeypatch.setattr("airflow_occ_provider.leases.keeper._END_TIMEOUT_S", 0.01)
    with Keeper(line, ticket, 100 * TTL_MS) as keeper:
        monkeypatch.setattr(line, "renew", renew)
        keeper.extend_soon()
        assert is_renewing.wait(PATIENCE_S)
        keeper.stop()
        line.release(ticket)
        go_on.set()
        for thread in keeper._threads:
            thread.join(PATIENCE_S)
        assert keeper.lost is None
    assert not caplog.text


def test_a_loss_that_is_told_before_the_release_counts(held, monkeypatch):
    line, ticket = held
    renew, is_renewing, go_on = hanging_renewal("it was granted to another owner")
    monkeypatch.setattr("airflow_occ_provider.leases.keeper._END_TIMEOUT_S", PATIENCE_S)
    with Keeper(line, ticket, 100 * TTL_MS) as keeper:
        monkeypatch.setattr(line, "renew", renew)
        keeper.extend_soon()
        assert is_renewing.wait(PATIENCE_S)
        stops = threading.Thread(target=keeper.stop)
        stops.start()
        while not keeper.is_stopped:
            threading.Event().wait(0.01)
        go_on.set()
        stops.join(PATIENCE_S)
        assert keeper.lost is not None


def test_whatever_a_renewal_fails_with_the_next_one_is_tried(nodes, held, monkeypatch):
    line, ticket = held
    renew, failed = line.renew, threading.Event()

    def once(ticket, ttl_ms):
        if not failed.is_set():
            failed.set()
            raise RuntimeError("unforeseen")
        renew(ticket, ttl_ms)

    with Keeper(line, ticket, 10 * TTL_MS) as keeper:
        monkeypatch.setattr(line, "renew", once)
        before = version(nodes, ticket)
        assert failed.wait(PATIENCE_S)
        while version(nodes, ticket) == before:
            threading.Event().wait(0.02)
        keeper.refuse_if_lost()


def test_a_failing_sweep_is_no_failed_renewal(nodes, held, monkeypatch):
    line, ticket = held
    swept = threading.Semaphore(0)

    def sweep(ticket):
        swept.release()
        raise LockUnreachableError("away")

    monkeypatch.setattr(line, "sweep", sweep)
    with Keeper(line, ticket, 10 * TTL_MS) as keeper:
        assert swept.acquire(timeout=PATIENCE_S)
        assert swept.acquire(timeout=PATIENCE_S)
        assert keeper._failure == ""


def test_a_lock_service_that_is_away_for_a_moment_loses_nothing(nodes, held):
    line, ticket = held
    with Keeper(line, ticket, 10 * TTL_MS) as keeper:
        nodes.away = True
        threading.Event().wait(1.5)
        nodes.away = False
        before = version(nodes, ticket)
        reached = threading.Event()
        while version(nodes, ticket) == before:
            reached.wait(0.02)
        keeper.refuse_if_lost()


@pytest.mark.parametrize(
    ("task", "minutes"),
    [
        ({}, 5),
        ({"retry_delay": timedelta(hours=1)}, 60),
        ({"retry_exponential_backoff": 2}, 40),
        ({"retry_exponential_backoff": 2, "max_retry_delay": timedelta(minutes=7)}, 7),
        ({"retry_delay": timedelta(days=9)}, 24 * 60),
    ],
)
def test_the_longest_absence_is_airflows_notice_and_the_delay_of_the_retry(task, minutes):
    assert longest_absence_ms(BaseOperator(task_id="t", **task), 3) == (310 + minutes * 60) * 1000


def test_a_long_lease_is_renewed_as_often_as_a_usual_one():
    store = Renewals()
    queue = Queue(store)
    ticket = queue.request(Request("r", Owner(("d", "r", "t")), (Scope.of("/t", None),), TTL_MS))
    with Keeper(queue, ticket, 3_600_000, usual_ttl_ms=TTL_MS):
        assert store.renewed.wait(PATIENCE_S)
    ((name, node),) = store.read(store.stamps()).items()
    assert Content.decode(node.data, name).term_ms == 3_600_000


class Renewals(MemoryStore):
    """A store that shows when a node was renewed thrice."""

    def __init__(self):
        super().__init__()
        self.renewed = threading.Event()
        self.times = 0

    def replace(self, name, data, version):
        self.times += 1
        if self.times > 3:
            self.renewed.set()
        return super().replace(name, data, version)


def test_an_outage_is_logged_once_and_so_is_its_end(nodes, held, caplog, monkeypatch):
    monkeypatch.setattr("airflow_occ_provider.leases.keeper._RETRY_S", 0.02)
    caplog.set_level("INFO")
    line, ticket = held
    with Keeper(line, ticket, 60_000, usual_ttl_ms=60):
        nodes.away = True
        wait = threading.Event()
        while nodes.refused < 5:
            wait.wait(0.01)
        nodes.away = False
        before = version(nodes, ticket)
        while version(nodes, ticket) < before + 2:
            wait.wait(0.01)
    lines = [record.getMessage() for record in caplog.records if "renewed" in record.getMessage()]
    assert lines[0].startswith("The lease could not be renewed, retrying: away")
    assert lines[1].startswith("The lease is renewed again")
    assert len(lines) == 2


class Timed:
    """A lease service that notes when each renewal began and ended."""

    def __init__(self, line):
        self._line, self.renewals, self.refuses = line, [], False
        self.renewed = threading.Semaphore(0)

    def renew(self, ticket, ttl_ms):
        began = time.monotonic()
        if self.refuses:
            raise LockUnreachableError("away", remedy="wait")
        self._line.renew(ticket, ttl_ms)
        self.renewals.append((began, time.monotonic()))
        self.renewed.release()

    def sweep(self, ticket):
        pass


def test_an_extension_counts_from_its_begin_and_only_if_it_succeeded(held):
    line, ticket = held
    service = Timed(line)
    with Keeper(service, ticket, 3_600_000) as keeper:  # the next regular renewal is far away
        (first,) = service.renewals
        assert keeper.extended_s <= first[0]
        service.refuses = True
        keeper.extend_soon()
        deadline = time.monotonic() + PATIENCE_S
        while not keeper._failure:
            assert time.monotonic() < deadline
        assert keeper.extended_s <= first[0]
        service.refuses = False
        assert service.renewed.acquire(timeout=PATIENCE_S)
        assert service.renewed.acquire(timeout=PATIENCE_S)
        while keeper.extended_s <= first[1]:
            assert time.monotonic() < deadline
        assert keeper.extended_s <= service.renewals[1][0]


def test_an_extension_that_is_wanted_does_not_wait_for_the_next_regular_one(held):
    line, ticket = held
    service = Timed(line)
    with Keeper(service, ticket, 3_600_000) as keeper:
        assert service.renewed.acquire(timeout=PATIENCE_S)
        for _ in range(3):
            keeper.extend_soon()
            assert service.renewed.acquire(timeout=PATIENCE_S)


def test_an_adopted_request_keeps_a_longer_term_until_it_is_renewed(nodes, held):
    """A driver may live on the term of the process before."""
    line, ticket = held
    line.renew(ticket, 10 * TTL_MS)

    def term_ms():
        return Content.decode(nodes.read([ticket.name])[ticket.name].data, ticket.name).term_ms

    again = Queue(nodes).request(Request("i", Owner(("d", "r", "t")), (Scope("/t"),), TTL_MS))
    assert again.epoch == 2
    assert term_ms() == 10 * TTL_MS
    other = Queue(nodes)
    other.renew(other.adopt(again))
    assert term_ms() == TTL_MS
