from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace

import pytest
from airflow.models.trigger import Trigger

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.request_node import Content
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.triggers import base, lease
from airflow_occ_provider.triggers import lease as shared
from airflow_occ_provider.triggers.base import in_thread
from airflow_occ_provider.triggers.lease import (
    HudiAdmissionTrigger,
    HudiFreeScopeTrigger,
    HudiKeepLeaseTrigger,
)
from tests.support.memory_store import MemoryStore

TTL_MS = 600
PATIENCE_S = 120


class Hook:
    """A lock connection whose queue is in memory, and which can be unreachable."""

    def __init__(self):
        self.nodes = MemoryStore()
        self.opened = self.closed = 0
        self.away = False

    def leases(self):
        if self.away:
            raise LockUnreachableError("away", remedy="wait")
        self.opened += 1
        line = Queue(self.nodes)
        line.close = self._close
        return line

    def _close(self):
        self.closed += 1


@pytest.fixture
def hook(monkeypatch):
    hook = Hook()
    monkeypatch.setattr(shared, "lock_hook", lambda conn_id: hook)
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    yield hook
    assert hook.opened == hook.closed
    assert shared._by_connection == {}


def ask(hook, run, partitions=None):
    line = Queue(hook.nodes)
    owner = Owner(("d", run, "t"))
    ticket = line.request(Request(run, owner, (Scope.of("/t", partitions),), TTL_MS))
    line.renew(ticket, 60_000)
    return line, ticket


def trigger(ticket, kind=HudiAdmissionTrigger, deadline_ms=0, claim_ttl_ms=5 * TTL_MS):
    return kind(
        lock_conn_id="lock",
        ticket=ticket.to_json(),
        ttl_ms=TTL_MS,
        claim_ttl_ms=claim_ttl_ms,
        deadline_ms=deadline_ms,
    )


async def first_event(a_trigger):
    event = await asyncio.wait_for(anext(a_trigger.run()), PATIENCE_S)
    return event.payload


def version(hook, ticket):
    return hook.nodes.read([ticket.name])[ticket.name].version


async def renewals(hook, ticket, count):
    begun = version(hook, ticket)
    while version(hook, ticket) < begun + count:  # noqa: ASYNC110 - the store sends no event of a write
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", [HudiAdmissionTrigger, HudiKeepLeaseTrigger])
def test_a_ticket_survives_airflows_database(hook, kind):
    _, ticket = ask(hook, "r1")
    before = trigger(ticket, kind)
    assert Trigger.from_object(before).kwargs == before.serialize()[1]
    assert kind(**before.serialize()[1]).serialize() == before.serialize()


def test_a_free_scope_trigger_survives_airflows_database():
    before = HudiFreeScopeTrigger(
        lock_conn_id="lock", table="/t", partitions=("a",), poll_s=1, deadline_ms=2
    )
    assert Trigger.from_object(before).kwargs == before.serialize()[1]


def test_an_admitted_waiter_gets_its_event_at_once_and_holds_a_claim(hook):
    _, ticket = ask(hook, "r1")
    assert asyncio.run(first_event(trigger(ticket))) == {"status": "granted"}
    rival, theirs = ask(hook, "r2")
    deadline = time.monotonic() + 2 * TTL_MS / 1000
    while time.monotonic() < deadline:
        assert not rival.status(theirs).held
        time.sleep(0.05)


def test_no_event_is_sent_before_the_scheduler_has_recorded_the_deferral(hook, monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.5)
    _, ticket = ask(hook, "r1")
    begun = time.monotonic()
    assert asyncio.run(first_event(trigger(ticket))) == {"status": "granted"}
    assert time.monotonic() - begun >= 0.5


def test_the_next_is_woken_by_the_release_and_renews_until_then(hook):
    line, first = ask(hook, "r1")
    _, second = ask(hook, "r2")

    async def wait():
        waiting = asyncio.create_task(first_event(trigger(second)))
        await renewals(hook, second, 3)
        assert not waiting.done()
        assert line.release(first)
        return await waiting

    assert asyncio.run(wait()) == {"status": "granted"}


def test_a_waiter_whose_driver_stands_by_is_woken_once_only_holders_are_before_it(hook):
    line, first = ask(hook, "r1")
    _, second = ask(hook, "r2")
    _, third = ask(hook, "r3")

    async def wait():
        waiter = trigger(third)
        waiter.until_next, waiter.ttl_ms = True, 10_000_000  # no renewal looks for it
        waiting = asyncio.create_task(first_event(waiter))
        await renewals(hook, third, 1)
        await asyncio.sleep(0.2)
        assert not waiting.done()
        assert line.release(first)
        return await waiting

    assert asyncio.run(wait()) == {"status": "next"}
    assert not line.status(third).held
    assert line.status(second).held


def test_one_session_serves_every_trigger_of_a_connection(hook):
    line, first = ask(hook, "r0")
    tickets = [ask(hook, f"r{n}", ["a"])[1] for n in range(1, 8)]

    async def wait():
        waiting = [asyncio.create_task(first_event(trigger(ticket))) for ticket in tickets]
        await asyncio.sleep(0.3)
        line.release(first)
        for ticket, one in zip(tickets, waiting, strict=True):
            assert await one == {"status": "granted"}
            Queue(hook.nodes).release(ticket)

    asyncio.run(wait())
    assert hook.opened == 1


def test_waiters_leave_slots_of_the_triggerer_to_keepers(hook, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRIGGERER__CAPACITY", "2")
    line, first = ask(hook, "r0")
    tickets = [ask(hook, f"r{number}")[1] for number in range(1, 4)]

    async def wait():
        waiting = [asyncio.create_task(first_event(trigger(ticket))) for ticket in tickets[:2]]
        for ticket in tickets[:2]:
            await renewals(hook, ticket, 1)
        assert await first_event(trigger(tickets[2])) == {"status": "full", "again_s": 0.75}
        line.release(first)
        assert await waiting[0] == {"status": "granted"}
        waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    asyncio.run(wait())
    assert lease._waiting == set()
    node = hook.nodes.read([tickets[2].name])[tickets[2].name]
    assert Content.decode(node.data, tickets[2].name).term_ms == 5 * TTL_MS


def test_a_place_that_is_gone_is_lost(hook):
    line, _ = ask(hook, "r1")
    _, ticket = ask(hook, "r2")
    line.evict(line.requests()[-1])
    event = asyncio.run(first_event(trigger(ticket)))
    assert event["status"] == "lost"
    assert "it was removed" in event["message"]


def test_the_deadline_ends_the_wait_also_where_the_lock_service_is_away(hook):
    ask(hook, "r1")
    _, ticket = ask(hook, "r2")
    soon = round(time.time() * 1000) + 300
    assert asyncio.run(first_event(trigger(ticket, deadline_ms=soon))) == {"status": "timeout"}
    hook.away = True
    assert asyncio.run(first_event(trigger(ticket, deadline_ms=soon))) == {"status": "timeout"}


def test_a_waiter_ended_by_the_user_leaves_the_queue_only_with_its_own_ticket(hook):
    line, ticket = ask(hook, "r1")
    taken = Queue(hook.nodes).adopt(ticket)
    asyncio.run(trigger(ticket).on_kill())
    assert [one.token for one in line.requests()] == [ticket.token]
    asyncio.run(trigger(taken).on_kill())
    assert line.requests() == ()


def test_a_keeper_distinguishes_a_release_from_a_loss(hook):
    line, ticket = ask(hook, "r1")

    async def released():
        keeping = asyncio.create_task(first_event(trigger(ticket, HudiKeepLeaseTrigger)))
        await renewals(hook, ticket, 2)
        line.release(ticket)
        return await keeping

    assert asyncio.run(released())["status"] == "released"


@pytest.mark.parametrize("states", [{}, {"r": {"release": "scheduled"}}])
def test_a_keeper_fires_only_once_a_release_has_ended_without_it(hook, monkeypatch, states):
    monkeypatch.setattr(lease, "_CHECK_S", 0.0)
    _, ticket = ask(hook, "r1")
    asked = []

    def get_task_states(**given):
        asked.append(given)
        if isinstance(states.get("away"), Exception):
            raise states["away"]
        return dict(states)

    monkeypatch.setattr(lease.RuntimeTaskInstance, "get_task_states", get_task_states)
    keeper = trigger(ticket, HudiKeepLeaseTrigger)
    keeper.release_task_ids = ["release"]
    ti = {"dag_id": "d", "run_id": "r", "task_id": "keep", "map_index": 2, "try_number": 1}
    keeper.task_instance = SimpleNamespace(**ti)

    async def fires():
        keeping = asyncio.create_task(first_event(keeper))
        await renewals(hook, ticket, 2)
        states["away"] = OSError("the API server is away")
        await renewals(hook, ticket, 4)
        assert not keeping.done()
        del states["away"]
        states["r"] = {"release_2": "failed"}
        return await keeping

    assert asyncio.run(fires()) == {"status": "check", "name": ticket.name}
    wanted = {"dag_id": "d", "map_index": 2, "task_ids": ["release"], "run_ids": ["r"]}
    assert all(given == wanted for given in asked)


def test_a_keeper_that_sees_the_release_end_looks_for_the_lease_first(hook, monkeypatch):
    monkeypatch.setattr(lease, "_CHECK_S", 0.0)
    line, ticket = ask(hook, "r1")
    states = {"r": {"release": "running"}}
    monkeypatch.setattr(lease.RuntimeTaskInstance, "get_task_states", lambda **_: dict(states))
    keeper = trigger(ticket, HudiKeepLeaseTrigger)
    keeper.release_task_ids = ["release"]
    ti = {"dag_id": "d", "run_id": "r", "task_id": "keep", "map_index": -1, "try_number": 1}
    keeper.task_instance = SimpleNamespace(**ti)

    async def released():
        keeping = asyncio.create_task(first_event(keeper))
        await renewals(hook, ticket, 2)
        line.release(ticket)
        states["r"] = {"release": "success"}
        return await keeping

    assert asyncio.run(released())["status"] == "released"


def test_a_keeper_that_could_not_renew_in_time_reports_the_loss(hook, monkeypatch):
    _, ticket = ask(hook, "r1")
    renew = Queue.renew

    def stalled(self, ticket, ttl_ms=None):
        if version(hook, ticket) >= 3:
            time.sleep(2 * TTL_MS / 1000)
            raise LeaseLostError("it was removed", remedy="")
        renew(self, ticket, ttl_ms)

    monkeypatch.setattr(Queue, "renew", stalled)
    keeper = trigger(ticket, HudiKeepLeaseTrigger, claim_ttl_ms=TTL_MS)
    assert asyncio.run(first_event(keeper))["status"] == "lost"


def test_a_keeper_distinguishes_a_loss_during_an_outage_from_a_release(hook, monkeypatch):
    monkeypatch.setattr(lease, "_RETRY_S", 0.01)
    _, ticket = ask(hook, "r1")
    keeper = trigger(ticket, HudiKeepLeaseTrigger, claim_ttl_ms=TTL_MS)
    renew, failures = Queue.renew, iter([0.0, 2 * TTL_MS / 1000])

    def away(self, ticket, ttl_ms=None):
        if version(hook, ticket) < 3:
            return renew(self, ticket, ttl_ms)
        stalled_s = next(failures, None)
        if stalled_s is None:
            raise LeaseLostError("it was removed", remedy="")
        time.sleep(stalled_s)
        raise LockUnreachableError("away", remedy="wait")

    monkeypatch.setattr(Queue, "renew", away)
    assert asyncio.run(first_event(keeper))["status"] == "lost"


@pytest.mark.parametrize("kind", [HudiAdmissionTrigger, HudiKeepLeaseTrigger])
def test_a_renewal_outlasts_the_crash_of_a_triggerer(hook, kind):
    ask(hook, "r0")
    _, ticket = ask(hook, "r1")
    assert [term_of(hook, ticket, kind, claim_ms) for claim_ms in (1, 170_000, 600_000)] == [
        TTL_MS,
        170_000,
        180_000,
    ]


def term_of(hook, ticket, kind, claim_ttl_ms):
    async def renewed():
        waiting = asyncio.create_task(first_event(trigger(ticket, kind, claim_ttl_ms=claim_ttl_ms)))
        await renewals(hook, ticket, 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(renewed())
    node = hook.nodes.read([ticket.name])[ticket.name]
    return Content.decode(node.data, ticket.name).term_ms


@pytest.mark.parametrize("kind", [HudiAdmissionTrigger, HudiKeepLeaseTrigger])
def test_a_trigger_that_stops_before_it_fired_claims_the_lease_for_the_next(hook, kind):
    _, ticket = ask(hook, "r1")
    asyncio.run(trigger(ticket, kind, claim_ttl_ms=170_000).cleanup())
    node = hook.nodes.read([ticket.name])[ticket.name]
    assert Content.decode(node.data, ticket.name).term_ms == 170_000


def test_a_trigger_that_fired_leaves_the_lease_alone(hook):
    _, ticket = ask(hook, "r1")
    fired = trigger(ticket)

    async def fire():
        assert await first_event(fired) == {"status": "granted"}
        before = version(hook, ticket)
        await fired.cleanup()
        assert version(hook, ticket) == before

    asyncio.run(fire())


def test_a_free_scope_is_reported_and_a_held_one_is_waited_for(hook):
    line, ticket = ask(hook, "r1", ["a"])

    def free(partitions, seconds):
        deadline_ms = round((time.time() + seconds) * 1000)
        return first_event(
            HudiFreeScopeTrigger(
                lock_conn_id="lock", table="/t", partitions=partitions, poll_s=0.05,
                deadline_ms=deadline_ms,
            )
        )  # fmt: skip

    assert asyncio.run(free(["b"], 10)) == {"status": "free"}
    assert asyncio.run(free(["a"], 0.3)) == {"status": "timeout"}
    line.release(ticket)
    assert asyncio.run(free(None, 10)) == {"status": "free"}


def test_a_trigger_that_is_cancelled_while_it_connects_leaves_nothing_open(hook):
    _, ticket = ask(hook, "r1")
    connecting, go_on, leases = threading.Event(), threading.Event(), hook.leases

    def slowly():
        connecting.set()
        go_on.wait(PATIENCE_S)
        return leases()

    hook.leases = slowly

    async def cancelled():
        waiting = asyncio.create_task(first_event(trigger(ticket)))
        await asyncio.to_thread(connecting.wait, PATIENCE_S)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()
        while shared._by_connection:  # noqa: ASYNC110 - it ends in a thread
            await asyncio.sleep(0.01)

    asyncio.run(cancelled())


def test_the_calls_of_a_service_use_the_same_threads_again():
    async def called():
        names = {await in_thread("here", lambda: threading.current_thread().name) for _ in range(50)}
        assert len(names) <= base._THREADS  # a thread counts as busy until shortly after its call

    asyncio.run(called())


def test_threads_of_a_service_last_as_long_as_its_calls_or_until_others_are_used():
    async def called():
        go_on = threading.Event()
        stuck = asyncio.create_task(in_thread("away", go_on.wait, PATIENCE_S))
        while "away" not in base._pools:  # noqa: ASYNC110
            await asyncio.sleep(0)
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        del stuck  # its error refers to the call
        assert "away" in base._pools  # its thread still runs
        assert await in_thread("here", lambda: 7) == 7
        go_on.set()
        for number in range(base._KEPT):
            await in_thread(f"service {number}", int)
        while {"away", "here"} & {*base._pools}:  # noqa: ASYNC110 - it ends in a thread
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(called(), PATIENCE_S))


def test_an_unreachable_lock_service_delays_no_trigger_of_another_one():
    async def both():
        go_on, many = threading.Event(), range(3 * base._THREADS)
        stuck = [asyncio.create_task(in_thread("away", go_on.wait, PATIENCE_S)) for _ in many]
        assert await asyncio.wait_for(in_thread("here", lambda: 7), PATIENCE_S) == 7
        go_on.set()
        await asyncio.gather(*stuck)

    asyncio.run(both())
