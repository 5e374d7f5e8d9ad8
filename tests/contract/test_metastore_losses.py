"""What is lost on a metastore, whose locks go by its own clock: told within one heartbeat."""

from __future__ import annotations

import threading
import time

import pytest

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.metastore import request_lock
from airflow_occ_provider.leases.metastore.locks import Part
from airflow_occ_provider.testing.queues import A, ask, holds, waits_for
from tests.contract.lines import METASTORE, POLL_S

pytestmark = pytest.mark.parametrize("backend", [METASTORE], indirect=True)


def drop(line, lock_id):
    """Take a lock away as the metastore does, behind its owner's back."""
    line.way.store.unlock(lock_id)


def epochs(line, ticket):
    return line.way.store.rows(request_lock.epoch_table(ticket.token))


def beats(line):
    return {row.lock_id: row.since_ms for row in line.way.store.rows()}


@pytest.mark.parametrize("call", ["renew", "status", "ensure_held", "adopt"])
@pytest.mark.parametrize("adopted", [False, True])
def test_a_lock_that_was_dropped_is_known_at_once(line, other, call, adopted):
    ticket = other.request(ask("r1"))
    if adopted:
        ticket = line.adopt(ticket)
    rival = other.request(ask("r2"))
    drop(other, ticket.token)
    assert holds(other, rival)
    with pytest.raises(LeaseLostError, match=r"removed.*Remedy"):
        getattr(line, call)(ticket)
    assert line.release(ticket) is False


def test_its_keeper_knows_it_within_one_heartbeat(line, other):
    ticket, ttl_s = line.request(ask("r1")), 1.5
    with Keeper(line, ticket, round(ttl_s * 1000)) as keeper:
        time.sleep(ttl_s)
        keeper.refuse_if_lost()
        drop(other, ticket.token)
        deadline = time.monotonic() + ttl_s / 3 + 2
        while keeper.lost is None and time.monotonic() < deadline:
            time.sleep(0.02)
        with pytest.raises(LeaseLostError, match="removed"):
            keeper.refuse_if_lost()


def test_who_was_stopped_after_he_was_granted_is_not_told_that_he_holds(line, other):
    ticket = line.request(ask("r1"))

    def stop():
        line.clock.s += 10.0
        drop(other, ticket.token)

    line.way.after("check", stop)
    with pytest.raises(LeaseLostError):
        line.status(ticket)


@pytest.mark.parametrize("call", ["renew", "status"])
def test_an_epoch_lives_as_long_as_its_request(line, other, call):
    """Else a zombie's ticket would be good again after its follower's death."""
    ticket = line.adopt(other.request(ask("r1")))
    (epoch,) = epochs(line, ticket)
    before = beats(line)
    getattr(line, call)(ticket)
    after = beats(line)
    assert before[ticket.token] < after[ticket.token] <= after[epoch.lock_id]


@pytest.mark.parametrize("call", ["renew", "status", "ensure_held", "adopt", "release"])
def test_a_zombie_keeps_nothing_alive(line, other, call):
    old = line.request(ask("r1"))
    other.adopt(old)
    before = beats(other)
    try:
        assert getattr(line, call)(old) is False
    except LeaseLostError:
        assert call != "release"
    assert beats(other) == before


def test_what_a_process_left_on_an_epoch_is_kept_alive_by_nobody(line, other):
    ticket = line.adopt(other.request(ask("r1")))
    left, _ = other.way.store.lock([request_lock.epoch_part(ticket.token, 2)], "dead", "dead")
    before = beats(line)[left]
    line.ensure_held(ticket)
    assert beats(line)[left] == before
    assert line.release(ticket)
    assert beats(line) == {}


def test_of_two_who_adopt_in_the_same_moment_one_has_it(line, other, open_queue):
    for _ in range(5):
        old, together, taken = line.request(ask("r1")), threading.Barrier(2), []

        def adopt(process, old=old, together=together, taken=taken):
            process.way.before("lock", lambda: together.wait(10))
            process.way.after("lock", lambda: together.wait(10))
            try:
                taken.append((process, process.adopt(old)))
            except LeaseLostError:
                taken.append(None)

        both = [threading.Thread(target=adopt, args=(one,)) for one in (other, open_queue())]
        for one in both:
            one.start()
        for one in both:
            one.join(20)
        ((process, ticket),) = filter(None, taken)
        assert len(taken) == 2
        process.ensure_held(ticket)
        assert len(epochs(line, old)) == 1
        assert process.release(ticket)


def test_who_adopts_so_late_that_the_name_is_free_again_has_nothing(line, other, open_queue):
    old, third, last = line.request(ask("r1")), open_queue(), []
    line.way.before("lock", lambda: last.append(third.adopt(other.adopt(old))))
    with pytest.raises(LeaseLostError, match="another process adopted it"):
        line.adopt(old)
    assert last[0].epoch == 3
    third.ensure_held(last[0])
    assert len(epochs(line, old)) == 1


def test_a_zombie_that_releases_while_it_is_taken_over_ends_nothing(line, other):
    old, rival, taken = line.request(ask("r1")), other.request(ask("r2")), []
    line.way.before("lock", lambda: taken.append(other.adopt(old)))
    assert line.release(old) is False
    other.ensure_held(taken[0])
    assert waits_for(other, rival) == [old.id]


def test_a_metastore_that_died_while_it_enqueued_an_epoch_keeps_nobody_waiting(line, other):
    """It granted nothing, so that lock waits until it is dropped."""
    old = line.request(ask("r1"))
    part = request_lock.epoch_part(old.token, 2)
    other.way.store.lock([part._replace(exclusive=True)], "x", "x")
    other.way.store.lock([part._replace(exclusive=True)], "dead", "dead")
    again = other.request(ask("r1", name=old.id))
    assert again.epoch == 3
    other.ensure_held(again)


def test_who_came_after_the_lease_of_its_run_went_and_lost_the_answer_stands_last(
    open_queue, line, other
):
    lease, rival = line.request(ask("r1", label="setup")), other.request(ask("r2"))
    late, asked, was_granted = open_queue(), ask("r1", "t"), []

    def go():
        line.release(lease)
        was_granted.append(holds(other, rival))

    late.way.before("lock", go)
    late.way.lose("lock", carried_out=True)
    with pytest.raises(LockUnreachableError):
        late.request(asked)
    task = late.request(asked)
    assert was_granted == [True]
    assert waits_for(late, task) == [rival.id]
    other.ensure_held(rival)


def test_a_lock_of_others_on_the_same_name_is_told_and_waited_for(line):
    locks, woken = line.way.store, threading.Event()
    by_hand, _ = locks.lock([Part(request_lock.table_name(A), "", exclusive=True)], "someone", "beeline")
    ticket = line.request(ask("r1"))
    (blocker,) = line.status(ticket, woken.set).blockers
    assert str(blocker.queued.request.owner) == "someone@airflow / beeline"
    assert not woken.wait(3 * POLL_S), "it is still there"
    drop(line, by_hand)
    assert woken.wait(10)
    assert holds(line, ticket)


def test_a_request_of_an_unknown_release_is_waited_for(line, other):
    lock_id, _ = other.way.store.lock([Part("request", "p000=aaaa", exclusive=False)], "newer", "newer")
    ticket = line.request(ask("r1"))
    assert waits_for(line, ticket) == [f"lock {lock_id}"]
    (unknown, _) = other.requests()
    assert other.evict(unknown)
    assert holds(line, ticket)
