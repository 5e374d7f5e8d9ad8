"""One suite for every store: the dead, the stopped, and answers that are lost."""

from __future__ import annotations

import itertools
import threading

import pytest

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.memory import MemoryNodes
from tests.contract.lines import (
    SHARED,
    B,
    Process,
    ask,
    holds,
    look_until_held,
    part,
    waits_for,
    where_waiters_remove_the_dead,
)


@where_waiters_remove_the_dead
def test_the_dead_are_removed_after_their_term(line, other):
    dead, rival = line.request(ask("r1", ttl_ms=3000)), other.request(ask("r2"))
    assert not holds(other, rival)
    assert not look_until_held(other, rival, 3.0)
    assert look_until_held(other, rival, 2.0)
    with pytest.raises(LeaseLostError):
        line.renew(dead)


@where_waiters_remove_the_dead
def test_a_dead_one_is_not_waited_for_longer_than_its_term_and_two_renewals(line, other):
    line.request(ask("r1"))
    rival = other.request(ask("r2"))
    assert look_until_held(other, rival, 5.0)


@where_waiters_remove_the_dead
def test_a_wall_of_the_dead_falls_at_once(line, other):
    for number in range(10):
        line.request(ask(f"r{number}", scopes=SHARED))
    rival = other.request(ask("rival"))
    assert look_until_held(other, rival, 5.0)


@where_waiters_remove_the_dead
def test_who_holds_removes_the_dead_before_him_one_after_the_other(line, other):
    for number in range(3):
        line.request(ask(f"r{number}", scopes=SHARED))
    alive = other.request(ask("alive", scopes=SHARED))
    apart = line.request(ask("apart", scopes=part("p=1", table=B)))
    assert holds(other, alive)
    for _ in range(30):
        other.clock.s += 1.0
        other.renew(alive)
        other.sweep(alive)
    assert {one.name for one in line.requests()} == {alive.name, apart.name}


@where_waiters_remove_the_dead
def test_who_lives_before_a_holder_is_left_alone(line, other):
    elder, younger = line.request(ask("r1", scopes=SHARED)), other.request(ask("r2", scopes=SHARED))
    for _ in range(12):
        other.clock.s += 1.0
        line.renew(elder)
        other.renew(younger)
        other.sweep(younger)
    line.ensure_held(elder)


@where_waiters_remove_the_dead
def test_a_renewal_saves(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    for _ in range(12):
        other.clock.s += 1.0
        line.renew(ticket)
        assert not holds(other, rival)
    line.ensure_held(ticket)


@where_waiters_remove_the_dead
def test_a_renewal_saves_in_the_last_moment(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    other.way.before("delete", lambda: line.renew(ticket))
    assert not look_until_held(other, rival, 5.0)
    assert "delete" in other.way.calls
    line.ensure_held(ticket)


@where_waiters_remove_the_dead
def test_an_observer_who_was_stopped_kills_nobody_who_renewed(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    assert not holds(other, rival)
    other.clock.s += 100.0
    line.renew(ticket)
    assert not holds(other, rival)


def _a_renewal_fails(other, rival):
    other.way.lose("write", carried_out=False)
    with pytest.raises(LockUnreachableError):
        other.renew(rival)


def _a_look_fails(other, rival):
    other.way.lose("names", carried_out=False)
    with pytest.raises(LockUnreachableError):
        holds(other, rival)


def _a_look_waits(other, rival):
    other.way.before("names", lambda: setattr(other.clock, "s", other.clock.s + 70.0))
    assert not holds(other, rival)


@where_waiters_remove_the_dead
@pytest.mark.parametrize("away", [_a_renewal_fails, _a_look_fails, _a_look_waits])
def test_while_the_lock_service_is_away_no_term_runs(line, other, away):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    assert not look_until_held(other, rival, 3.0)
    away(other, rival)
    other.clock.s += 70.0
    assert not look_until_held(other, rival, 3.0), "its owner has a whole term to come back"
    line.renew(ticket)
    line.ensure_held(ticket)


@where_waiters_remove_the_dead
def test_an_outage_that_an_observer_slept_through_counts_as_one_renewal(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    assert not look_until_held(other, rival, 1.0)
    other.clock.s += 70.0
    assert not look_until_held(other, rival, 0.0)
    assert not look_until_held(other, rival, 1.0)
    line.renew(ticket)
    line.ensure_held(ticket)


@where_waiters_remove_the_dead
def test_after_an_outage_the_dead_are_removed_all_the_same(line, other):
    line.request(ask("r1"))
    rival = other.request(ask("r2"))
    _a_look_fails(other, rival)
    assert look_until_held(other, rival, 5.0)


@where_waiters_remove_the_dead
@pytest.mark.parametrize(("claim_ms", "stands_s"), [(None, 3.0), (12_000, 12.0)])
def test_a_claim_stands_for_as_long_as_was_said(line, other, claim_ms, stands_s):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    line.renew(ticket, claim_ms)
    assert not holds(other, rival)
    assert not look_until_held(other, rival, stands_s)
    assert look_until_held(other, rival, 2.0)


@where_waiters_remove_the_dead
def test_an_adoption_ends_the_claim(line, other, backend):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    line.renew(ticket, 60_000)
    backend.process().adopt(ticket)
    assert not holds(other, rival)
    assert look_until_held(other, rival, 5.0)


@where_waiters_remove_the_dead
def test_who_was_stopped_for_too_long_is_not_told_that_he_holds(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    assert holds(line, ticket)

    assert not holds(other, rival)

    def stop():
        line.clock.s += 10.0
        assert look_until_held(other, rival, 5.0)

    line.way.after("names", stop)
    with pytest.raises(LeaseLostError):
        line.status(ticket)


@where_waiters_remove_the_dead
def test_a_claim_whose_end_was_not_answered_is_not_trusted_in(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    line.renew(ticket, 60_000)
    line.way.lose("write", carried_out=True)
    with pytest.raises(LockUnreachableError):
        line.renew(ticket)
    assert not holds(other, rival)

    def stop():
        line.clock.s += 10.0
        assert look_until_held(other, rival, 5.0)

    line.way.after("names", stop)
    with pytest.raises(LeaseLostError):
        line.status(ticket)


def test_wake_is_called_on_a_deletion_and_not_on_renewals(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    woken = threading.Event()
    assert not other.status(rival, woken.set).held
    for _ in range(3):
        line.renew(ticket)
    third = line.request(ask("r3"))
    line.release(third)
    assert not woken.wait(0.3)
    line.release(ticket)
    assert woken.wait(5)
    assert holds(other, rival)


def test_after_a_watch_that_was_not_answered_the_same_callback_wakes(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    woken = threading.Event()
    other.way.lose("watch", carried_out=False)
    with pytest.raises(LockUnreachableError):
        other.status(rival, woken.set)
    assert not other.status(rival, woken.set).held
    line.release(ticket)
    assert woken.wait(5)


def test_an_elder_who_leaves_before_he_is_watched_is_not_missed(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    other.way.before("watch", lambda: line.release(ticket))
    woken = threading.Event()
    assert other.status(rival, woken.set).held or woken.wait(5)
    assert holds(other, rival)


class Lagging(MemoryNodes):
    """Read from a server that has seen nothing yet; what is asked after a sync is as it is."""

    def read(self, names):
        return {}

    def latest(self, names):
        return super().read(names)


def test_a_server_that_lags_behind_takes_no_lease_away():
    nodes = Lagging()
    ticket = Process(nodes).request(ask("r1"))
    adopted = Process(nodes).adopt(ticket)
    Process(nodes).renew(adopted)
    Process(nodes).ensure_held(adopted)
    assert Process(nodes).release(adopted) is True


def test_a_server_that_lags_behind_lets_nobody_in():
    nodes = Lagging()
    holder = Process(nodes)
    ticket, rival = holder.request(ask("r1")), Process(nodes)
    waiting = rival.request(ask("r2"))
    assert waits_for(rival, waiting) == [ticket.id]
    holder.renew(ticket)
    assert not look_until_held(rival, waiting, 3.0)
    (first, _) = rival.requests()
    assert rival.evict(first)


OF_NODES = {
    "request": ["names", "create"],
    "request again": ["names", "read", "latest", "write"],
    "request anew": ["latest", "delete", "create"],
    "request under": ["create"],
    "status": ["names", "read", "watch", "latest", "write"],
    "renew": ["latest", "write"],
    "ensure_held": ["latest", "write", "names"],
    "adopt": ["latest", "write"],
    "release": ["latest", "delete"],
    "line": ["names", "read"],
}
OF_LOCKS = {
    "request": ["rows", "lock"],
    "request again": ["rows", "heartbeat", "lock"],
    "request anew": ["unlock", "lock"],
    "request under": ["lock"],
    "status": ["rows", "check", "heartbeat"],
    "renew": ["rows", "heartbeat"],
    "ensure_held": ["rows", "heartbeat", "check"],
    "adopt": ["rows", "heartbeat", "lock"],
    "release": ["rows", "heartbeat", "lock", "unlock"],
    "line": ["rows"],
}
LOST = [
    pytest.param(
        *(store, name, operation, carried_out),
        id=f"{store}-{name}-{operation}-{'after' if carried_out else 'before'}",
    )
    for store, methods in (("memory", OF_NODES), ("zookeeper", OF_NODES), ("metastore", OF_LOCKS))
    for name, operations in methods.items()
    for operation, carried_out in itertools.product(operations, [True, False])
]


@pytest.mark.parametrize(("backend", "name", "operation", "carried_out"), LOST, indirect=["backend"])
def test_every_method_may_be_repeated_after_a_lost_answer(backend, other, name, operation, carried_out):
    asked = ask("r1", "t", name="asked", instead_of=["before"])
    ticket = None
    if name == "request under":
        other.request(ask("r1", label="setup"))
    elif name == "request anew":
        other.request(ask("r1", "t", name="before"))
    elif name == "status" and operation in {"read", "watch"}:
        other.request(ask("elder"))
    if not name.startswith("request") or name == "request again":
        ticket = other.request(asked)
    rival = other.request(ask("rival"))
    line = backend.process()
    if name in {"status", "renew", "ensure_held"}:
        ticket = line.adopt(ticket)
        line.forget()

    def do():
        match name.split()[0]:
            case "request":
                return line.request(asked)
            case "status":
                return line.status(ticket, lambda: None)
            case "line":
                return line.requests()
            case method:
                return getattr(line, method)(ticket)

    line.way.lose(operation, carried_out=carried_out)
    with pytest.raises(LockUnreachableError):
        do()
    answer = do()
    mine = [one for one in other.requests() if one.request.id == "asked"]
    if name == "release":
        assert answer is not (carried_out and operation in {"delete", "unlock"})
        assert mine == []
        assert holds(other, rival)
        return
    assert len(mine) == 1
    assert holds(other, rival) is (name in {"request", "request anew"})
    if isinstance(answer, Ticket):
        assert (answer.name, answer.token) == (mine[0].name, mine[0].token)
        assert answer.epoch == (2 if name in {"adopt", "request again"} else 1)
        line.renew(answer)
