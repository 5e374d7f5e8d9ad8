"""One suite for every store: who is granted, in which order, to which process."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_occ_provider.errors import LeaseLostError, LeaseRefusedError, LockUnreachableError
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.testing.queue_contract import QueueContract
from airflow_occ_provider.testing.queues import (
    SHARED,
    WHOLE,
    A,
    B,
    ask,
    check_until_held,
    holds,
    part,
    waits_for,
)
from airflow_occ_provider.testing.store_contract import StoreContract
from tests.golden.request_nodes import FIRST, NAMES, TRIPS


class TestStore(StoreContract):
    pass


class TestQueue(QueueContract):
    pass


@pytest.mark.parametrize("looked", [True, False])
def test_a_lease_that_goes_leaves_its_task_before_the_rival(line, other, looked):
    lease, rival = line.request(ask("r1", label="setup")), other.request(ask("r2"))
    if looked:
        assert waits_for(other, rival) == [lease.id]
    task = line.request(ask("r1", "t"))
    line.release(lease)
    assert holds(line, task)
    assert waits_for(other, rival) == [task.id]
    line.release(task)
    assert holds(other, rival)


def test_a_lease_that_goes_during_a_look_leaves_its_task_before_the_rival(open_queue, line, other):
    lease = line.request(ask("r1", label="setup"))
    waiting = other.request(ask("r2"))
    rival = open_queue()
    ticket = rival.adopt(waiting)
    tasks = []

    def go():
        tasks.append(line.request(ask("r1", "t")))
        line.release(lease)

    rival.way.after("stamps", go)
    # A store that answers by one look has seen neither.
    assert waits_for(rival, ticket) in ([tasks[0].id], [lease.id])
    assert waits_for(rival, ticket) == [tasks[0].id]


def test_tasks_under_one_lease_take_turns(line, other):
    line.request(ask("r1", label="setup"))
    first, second = line.request(ask("r1", "t")), other.request(ask("r1", "u"))
    assert holds(line, first)
    assert waits_for(other, second) == [first.id]


def test_two_leases_of_one_run_do_not_let_two_tasks_in(line, other):
    first, second = line.request(ask("r1", label="a")), line.request(ask("r1", label="b"))
    before = line.request(ask("r1", "t"))
    assert [holds(line, one) for one in (first, second, before)] == [True, True, True]
    line.release(first)
    after = other.request(ask("r1", "u"))
    assert waits_for(other, after) == [before.id]
    assert holds(line, before)


def test_a_lease_that_comes_while_its_task_asks_lets_nobody_in_beside_it(line, other):
    line.way.before("create", lambda: other.request(ask("r1", label="setup", name="lease")))
    task = line.request(ask("r1", "t"))
    assert holds(line, task), "it left, and came back under the lease"
    after = other.request(ask("r1", "u"))
    assert waits_for(other, after) == [task.id]


@pytest.mark.parametrize("answered", [True, False])
def test_of_two_leases_that_one_run_asks_for_at_once_the_younger_is_refused(line, other, answered):
    asked = ask("r1", label="lease[1]", scopes=part("p", table=B))
    line.way.before("create", lambda: other.request(ask("r1", label="lease[0]", name="first")))
    if not answered:
        line.way.lose("create", carried_out=True)
        with pytest.raises(LockUnreachableError):
            line.request(asked)
    with pytest.raises(LeaseRefusedError, match="already has a lease"):
        line.request(asked)
    assert [one.request.id for one in other.requests()] == ["first"]


def test_a_request_that_is_not_known_is_waited_for_even_if_its_owner_is_the_same(line, other):
    first, second = line.request(ask("r1", "t")), other.request(ask("r1", "t"))
    assert waits_for(other, second) == [first.id]
    line.ensure_held(first)


def test_the_same_run_of_another_site_is_a_rival(line, other):
    lease = line.request(ask("r1", label="setup", site="blue"))
    task = line.request(ask("r1", "t", site="blue"))
    rivals = [
        other.request(ask("r1", *below, site="green", label=label, name=f"green {label}"))
        for below, label in (((), "setup"), (("t",), ""))
    ]
    line.ensure_held(lease)
    line.ensure_held(task)
    assert waits_for(other, rivals[0]) == waits_for(other, rivals[1]) == [lease.id, task.id]


def test_an_older_try_neither_takes_over_nor_gives_up_what_a_younger_one_asked_for(line, other):
    asked = ask("r1", "t", name="q", attempt=1)
    line.request(asked)
    younger = other.request(replace(asked, incarnation=2))
    for late in (asked, ask("r1", "t", attempt=1, instead_of=["q"])):
        with pytest.raises(LeaseRefusedError, match=r"try 1 requests .*try 2 is queued"):
            line.request(late)
    other.ensure_held(younger)
    assert len(other.requests()) == 1


def test_an_older_try_that_wakes_while_it_takes_over_is_refused(line, other, open_queue):
    asked, taken = ask("r1", "t", attempt=1), []
    open_queue().request(asked)
    line.way.before("replace", lambda: taken.append(other.request(replace(asked, incarnation=2))))
    with pytest.raises(LeaseRefusedError):
        line.request(asked)
    other.ensure_held(taken[0])


@pytest.mark.parametrize("process", ["same", "other"])
def test_the_same_request_again_keeps_its_place(line, other, process):
    asked = ask("r1")
    first, rival = line.request(asked), other.request(ask("r2"))
    again = (line if process == "same" else other).request(asked)
    assert (again.name, again.token) == (first.name, first.token)
    assert again.epoch == (1 if process == "same" else 2)
    assert waits_for(other, rival) == [first.id]


@pytest.mark.parametrize("call", ["renew", "ensure_held", "adopt"])
def test_a_zombie_is_refused(line, other, call):
    old = line.request(ask("r1"))
    new = other.adopt(old)
    with pytest.raises(LeaseLostError, match=r"another process adopted it.*Remedy"):
        getattr(line, call)(old)
    other.ensure_held(new)


def test_a_zombie_knows_within_one_renewal(line, other):
    old = line.request(ask("r1"))
    assert holds(line, old)
    other.adopt(old)
    line.clock.s += 3.0
    with pytest.raises(LeaseLostError):
        line.status(old)


def test_what_a_holder_announces_is_told_and_survives_renewals_and_adoptions(line, other):
    old, rival = line.request(ask("r1", scopes=SHARED)), other.request(ask("r2", scopes=SHARED))
    elsewhere = other.request(ask("r3", scopes=(Scope.of(B, None),)))
    owner = line.requests(A)[0].request.owner
    line.announce(old, ["20261122091720286"])
    line.renew(old)
    assert other.announced(rival, A) == {"20261122091720286": owner}
    assert other.announced(elsewhere, B) == line.announced(old, A) == {}
    new = other.adopt(old)
    with pytest.raises(LeaseLostError):
        line.announce(old, ["1"])
    assert line.announced(rival, A) == {"20261122091720286": owner}
    other.announce(new, ["20261122091721756"])
    assert line.announced(rival, A) == {"20261122091721756": owner}
    other.release(new)
    assert line.announced(rival, A) == {}


def test_an_announcement_is_no_loss_where_requests_cannot_be_changed(line):
    ticket = line.request(ask("r1"))
    line.announce(ticket, ["1"])
    assert line.announced(ticket, A) == {}
    assert holds(line, ticket)


def test_who_waits_may_leave(line, other):
    first, second = line.request(ask("r1")), other.request(ask("r2"))
    assert other.release(second)
    assert [one.request.id for one in line.requests()] == [first.id]


def test_the_line_of_a_table(line, other):
    on_a, on_b = (
        line.request(ask("r1", scopes=SHARED)),
        other.request(ask("r2", scopes=part("p", table=B))),
    )
    both = line.request(ask("r3", scopes=[*WHOLE, Scope.of(B, None, Mode.SHARED)]))
    assert [one.request.id for one in other.requests()] == [on_a.id, on_b.id, both.id]
    assert [one.request.id for one in other.requests(A)] == [on_a.id, both.id]
    assert [one.request.id for one in other.requests(B)] == [on_b.id, both.id]
    assert other.requests("s3://lake/c") == ()
    assert all(one.since_ms > 1_600_000_000_000 for one in other.requests())


def test_the_line_of_a_run(line, other):
    lease = line.request(ask("r1", label="setup", site="blue"))
    task = line.request(ask("r1", "t", site="blue"))
    for one in (ask("r2", "t", site="blue"), ask("r1", "t", site="green")):
        other.request(one)
    found = other.requests_of_run(Owner(("dag", "r1", "u"), site="blue"))
    assert [one.request.id for one in found] == [lease.id, task.id]


def test_nodes_of_the_first_release_stand_in_the_same_queue(line, other):
    nodes, run = other.way.store, ("trips", "scheduled__2026-11-21")
    nodes.create(NAMES[1], FIRST[1])
    rival, task = (
        line.request(Request(name, Owner((*run, *below), site="green"), TRIPS, 3000))
        for name, below in (("rival", ()), ("6f2d", ("write",)))
    )
    assert waits_for(line, rival) == ["5d1c"], "it may be of another site"
    assert waits_for(line, task) == ["5d1c"]
    adopted = line.request(Request("5d1c", Owner(run, "lease", "green"), TRIPS, 3000, 2))
    line.ensure_held(adopted)
    assert line.release(adopted)
    assert holds(line, rival)


@pytest.mark.parametrize("name", ["stray", NAMES[1]])
def test_an_unknown_node_blocks_and_stays(line, other, name):
    other.way.store.create(name, b"of another release")
    trips = line.request(Request("trips", Owner(("d", "r")), TRIPS, 3000))
    elsewhere = line.request(ask("r2", scopes=part("p", table=B)))
    assert not check_until_held(line, trips, 30.0)
    assert holds(line, elsewhere) is (name != "stray")
    line.sweep(trips)
    (unknown,) = (one for one in line.requests() if one.unknown)
    assert name in str(unknown.request.owner)
    assert line.evict(unknown)
    assert holds(line, trips)
    assert holds(line, elsewhere)
