"""One suite for every store: the dead, the stopped, and answers that are lost."""

from __future__ import annotations

import pytest

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.testing.lost_answers import LostAnswerContract
from airflow_occ_provider.testing.queue_contract import ExpiryContract
from airflow_occ_provider.testing.queues import (
    SHARED,
    B,
    LossyQueue,
    ask,
    check_until_held,
    holds,
    part,
    waits_for,
)
from tests.support.memory_store import MemoryStore


class TestExpiry(ExpiryContract):
    pass


class TestLostAnswers(LostAnswerContract):
    pass


def test_a_dead_one_is_not_waited_for_longer_than_its_term_and_two_renewals(line, other):
    line.request(ask("r1"))
    rival = other.request(ask("r2"))
    assert check_until_held(other, rival, 5.0)


def test_a_wall_of_the_dead_falls_at_once(line, other):
    for number in range(10):
        line.request(ask(f"r{number}", scopes=SHARED))
    rival = other.request(ask("rival"))
    assert check_until_held(other, rival, 5.0)


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


def test_who_lives_before_a_holder_is_left_alone(line, other):
    elder, younger = line.request(ask("r1", scopes=SHARED)), other.request(ask("r2", scopes=SHARED))
    for _ in range(12):
        other.clock.s += 1.0
        line.renew(elder)
        other.renew(younger)
        other.sweep(younger)
    line.ensure_held(elder)


def test_an_observer_who_was_stopped_kills_nobody_who_renewed(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    assert not holds(other, rival)
    other.clock.s += 100.0
    line.renew(ticket)
    assert not holds(other, rival)


def _a_renewal_fails(other, rival):
    other.way.lose("replace", carried_out=False)
    with pytest.raises(LockUnreachableError):
        other.renew(rival)


def _a_look_fails(other, rival):
    other.way.lose("stamps", carried_out=False)
    with pytest.raises(LockUnreachableError):
        holds(other, rival)


def _a_look_waits(other, rival):
    other.way.before("stamps", lambda: setattr(other.clock, "s", other.clock.s + 70.0))
    assert not holds(other, rival)


@pytest.mark.parametrize("away", [_a_renewal_fails, _a_look_fails, _a_look_waits])
def test_while_the_lock_service_is_away_no_term_runs(line, other, away):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    assert not check_until_held(other, rival, 3.0)
    away(other, rival)
    other.clock.s += 70.0
    assert not check_until_held(other, rival, 3.0), "its owner has a whole term to come back"
    line.renew(ticket)
    line.ensure_held(ticket)


def test_after_an_outage_the_dead_are_removed_all_the_same(line, other):
    line.request(ask("r1"))
    rival = other.request(ask("r2"))
    _a_look_fails(other, rival)
    assert check_until_held(other, rival, 5.0)


@pytest.mark.parametrize(("claim_ms", "stands_s"), [(None, 3.0), (12_000, 12.0)])
def test_a_claim_stands_for_as_long_as_was_said(line, other, claim_ms, stands_s):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    line.renew(ticket, claim_ms)
    assert not holds(other, rival)
    assert not check_until_held(other, rival, stands_s)
    assert check_until_held(other, rival, 2.0)


def test_who_was_stopped_for_too_long_is_not_told_that_he_holds(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    assert holds(line, ticket)

    assert not holds(other, rival)

    def stop():
        line.clock.s += 10.0
        assert check_until_held(other, rival, 5.0)

    line.way.after("stamps", stop)
    with pytest.raises(LeaseLostError):
        line.status(ticket)


def test_a_claim_whose_end_was_not_answered_is_not_trusted_in(line, other):
    ticket, rival = line.request(ask("r1")), other.request(ask("r2"))
    line.renew(ticket, 60_000)
    line.way.lose("replace", carried_out=True)
    with pytest.raises(LockUnreachableError):
        line.renew(ticket)
    assert not holds(other, rival)

    def stop():
        line.clock.s += 10.0
        assert check_until_held(other, rival, 5.0)

    line.way.after("stamps", stop)
    with pytest.raises(LeaseLostError):
        line.status(ticket)


class Lagging(MemoryStore):
    """Read from a server that has seen nothing yet; what is asked after a sync is as it is."""

    def read(self, names, *, latest=False):
        return super().read(names) if latest else {}


def test_a_server_that_lags_behind_takes_no_lease_away():
    nodes = Lagging()
    ticket = LossyQueue(nodes).request(ask("r1"))
    adopted = LossyQueue(nodes).adopt(ticket)
    LossyQueue(nodes).renew(adopted)
    LossyQueue(nodes).ensure_held(adopted)
    assert LossyQueue(nodes).release(adopted) is True


def test_a_server_that_lags_behind_lets_nobody_in():
    nodes = Lagging()
    holder = LossyQueue(nodes)
    ticket, rival = holder.request(ask("r1")), LossyQueue(nodes)
    waiting = rival.request(ask("r2"))
    assert waits_for(rival, waiting) == [ticket.id]
    holder.renew(ticket)
    assert not check_until_held(rival, waiting, 3.0)
    (first, _) = rival.requests()
    assert rival.evict(first)
