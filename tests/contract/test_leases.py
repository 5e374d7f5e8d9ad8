"""One suite for every store: who is granted, in which order, to which process."""

from __future__ import annotations

import pytest

from airflow_occ_provider.errors import LeaseLostError, LeaseRefusedError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.rules import Mode, Scope
from tests.contract.lines import SHARED, WHOLE, A, B, ask, holds, part, waits_for


def test_first_come_first_served(line, other):
    first, second, third = line.request(ask("r1")), other.request(ask("r2")), line.request(ask("r3"))
    assert [holds(line, first), holds(other, second), holds(line, third)] == [True, False, False]
    assert waits_for(line, third) == [first.id, second.id]
    assert other.release(second)
    assert waits_for(line, third) == [first.id]
    assert line.release(first)
    assert holds(line, third)


def test_tokens_rise(line, other):
    tokens = [one.request(ask(f"r{n}")).token for n, one in enumerate([line, other] * 4)]
    assert tokens == sorted(set(tokens))


def test_shared_goes_with_shared_and_does_not_overtake_exclusive(line, other):
    first, second = line.request(ask("r1", scopes=SHARED)), other.request(ask("r2", scopes=SHARED))
    alone = other.request(ask("r3"))
    late = line.request(ask("r4", scopes=SHARED))
    assert holds(line, first)
    assert holds(other, second)
    assert waits_for(other, alone) == [first.id, second.id]
    assert waits_for(line, late) == [alone.id]


def test_disjoint_partitions_go_together(line, other):
    one, two = line.request(ask("r1", scopes=part("p=1"))), other.request(ask("r2", scopes=part("p=2")))
    below = other.request(ask("r3", scopes=part("p=1/q=1")))
    assert holds(line, one)
    assert holds(other, two)
    assert waits_for(other, below) == [one.id]


def test_several_tables_are_taken_at_once_in_whatever_order(line, other):
    both = [Scope.of(A, None), Scope.of(B, None)]
    first, second = line.request(ask("r1", scopes=both)), other.request(ask("r2", scopes=both[::-1]))
    on_b = other.request(ask("r3", scopes=part("p=1", table=B)))
    assert holds(line, first)
    assert waits_for(other, second) == [first.id]
    assert waits_for(other, on_b) == [first.id, second.id]
    line.release(first)
    assert holds(other, second)


def test_a_task_passes_under_the_lease_of_its_run(line, other):
    lease, rival = line.request(ask("r1", label="setup")), other.request(ask("r2"))
    task = other.request(ask("r1", "t", scopes=part("p=1")))
    assert holds(line, lease)
    assert holds(other, task)
    assert waits_for(other, rival) == [lease.id, task.id]


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


def test_a_task_whose_runs_lease_goes_while_it_asks_stands_last(backend, line, other):
    lease, rival = line.request(ask("r1", label="setup")), other.request(ask("r2"))
    late = backend.process()
    late.way.before("create", lambda: line.release(lease))
    task = late.request(ask("r1", "t"))
    assert holds(other, rival)
    assert waits_for(late, task) == [rival.id]


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
    beside = line.request(ask("r1", "t"))
    assert waits_for(line, beside) == ["lease"]
    under = other.request(ask("r1", "u"))
    assert holds(other, under)
    assert waits_for(line, beside) == ["lease", under.id]


def test_of_two_requests_of_one_owner_at_once_one_waits(line, other):
    line.way.before("create", lambda: other.request(ask("r1", "t", name="first")))
    second = line.request(ask("r1", "t"))
    assert waits_for(line, second) == ["first"]


def test_a_second_lease_is_refused_and_leaves_nothing(line):
    line.request(ask("r1", label="setup", scopes=part("p=1")))
    with pytest.raises(LeaseRefusedError, match="Remedy"):
        line.request(ask("r1", "t", scopes=part("p=2")))
    assert len(line.line()) == 1


def test_the_same_owner_asking_anew_gives_the_first_up(line, other):
    first, rival = line.request(ask("r1", "t")), line.request(ask("r2"))
    anew = other.request(ask("r1", "t", scopes=SHARED))
    assert [one.request.id for one in line.line()] == [rival.id, anew.id]
    with pytest.raises(LeaseLostError):
        line.status(first)
    assert holds(line, rival)


@pytest.mark.parametrize("process", ["same", "other"])
def test_the_same_request_again_keeps_its_place(line, other, process):
    asked = ask("r1")
    first, rival = line.request(asked), other.request(ask("r2"))
    again = (line if process == "same" else other).request(asked)
    assert (again.name, again.token) == (first.name, first.token)
    assert again.epoch == (1 if process == "same" else 2)
    assert waits_for(other, rival) == [first.id]


def test_of_one_request_that_came_twice_the_elder_is_taken_over(line, other, backend):
    asked, elder = ask("r1"), []
    line.way.before("create", lambda: elder.append(other.request(asked)))
    younger = line.request(asked)
    for _ in range(4):
        assert backend.process().request(asked).token == elder[0].token < younger.token


def test_a_ticket_goes_from_process_to_process(backend, line):
    ticket = line.request(ask("r1"))
    for epoch in range(2, 5):
        ticket = backend.process().adopt(Ticket.from_json(ticket.to_json()))
        assert ticket.epoch == epoch
    last = backend.process()
    ticket = last.adopt(ticket)
    last.ensure_held(ticket)


@pytest.mark.parametrize("call", ["renew", "ensure_held", "adopt"])
def test_a_zombie_is_refused(line, other, call):
    old = line.request(ask("r1"))
    new = other.adopt(old)
    with pytest.raises(LeaseLostError, match=r"another process took it over.*Remedy"):
        getattr(line, call)(old)
    other.ensure_held(new)


def test_a_zombie_knows_within_one_renewal(line, other):
    old = line.request(ask("r1"))
    assert holds(line, old)
    other.adopt(old)
    line.clock.s += 3.0
    with pytest.raises(LeaseLostError):
        line.status(old)


def test_only_one_of_two_processes_adopts(line, other, backend):
    old = line.request(ask("r1"))
    third = backend.process()
    other.way.before("write", lambda: third.adopt(old))
    with pytest.raises(LeaseLostError):
        other.adopt(old)


def test_an_old_ticket_releases_nothing(line, other):
    old = line.request(ask("r1"))
    new = other.adopt(old)
    assert line.release(old) is False
    assert holds(other, new)
    assert other.release(new) is True
    assert other.release(new) is False


def test_who_waits_may_leave(line, other):
    first, second = line.request(ask("r1")), other.request(ask("r2"))
    assert other.release(second)
    assert [one.request.id for one in line.line()] == [first.id]


def test_ensure_held(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    line.ensure_held(ticket)
    with pytest.raises(LeaseLostError, match="it waits for dag / r1"):
        other.ensure_held(rival)
    line.release(ticket)
    other.ensure_held(rival)
    with pytest.raises(LeaseLostError, match="it was removed"):
        line.ensure_held(ticket)


def test_the_line_of_a_table(line, other):
    on_a, on_b = (
        line.request(ask("r1", scopes=SHARED)),
        other.request(ask("r2", scopes=part("p", table=B))),
    )
    both = line.request(ask("r3", scopes=[*WHOLE, Scope.of(B, None, Mode.SHARED)]))
    assert [one.request.id for one in other.line()] == [on_a.id, on_b.id, both.id]
    assert [one.request.id for one in other.line(A)] == [on_a.id, both.id]
    assert [one.request.id for one in other.line(B)] == [on_b.id, both.id]
    assert other.line("s3://lake/c") == ()
    assert all(one.since_ms > 1_600_000_000_000 for one in other.line())


def test_an_eviction_by_force(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    (first, _) = other.line(A)
    line.renew(ticket)
    assert other.evict(first) is True
    assert other.evict(first) is False
    assert holds(other, rival)
    with pytest.raises(LeaseLostError):
        line.renew(ticket)


def test_a_closed_line_leaves_its_requests(backend, other):
    leaving = backend.process()
    ticket = leaving.request(ask("r1"))
    leaving.close()
    assert [one.request.id for one in other.line()] == [ticket.id]
