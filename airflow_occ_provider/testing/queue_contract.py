"""The contract of the queue over a store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

import pytest

from airflow_occ_provider.errors import LeaseLostError, LeaseRefusedError, LockUnreachableError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.rules import Scope
from airflow_occ_provider.testing.queues import (
    SHARED,
    A,
    B,
    LossyQueue,
    ask,
    check_until_held,
    holds,
    part,
    waits_for,
)

OpenQueue: TypeAlias = Callable[[], LossyQueue]


class QueueContract:
    """The tests of the queue over a ``Store``: subclass them as ``TestMyQueue``.

    The fixture ``open_store`` returns a function that opens another client of one empty store.
    """

    def test_first_come_first_served(self, queue: LossyQueue, other: LossyQueue) -> None:
        first, second, third = (
            queue.request(ask("r1")),
            other.request(ask("r2")),
            queue.request(ask("r3")),
        )
        assert [holds(queue, first), holds(other, second), holds(queue, third)] == [True, False, False]
        assert waits_for(queue, third) == [first.id, second.id]
        assert other.release(second)
        assert waits_for(queue, third) == [first.id]
        assert queue.release(first)
        assert holds(queue, third)

    def test_tokens_rise(self, queue: LossyQueue, other: LossyQueue) -> None:
        tokens = [client.request(ask(f"r{n}")).token for n, client in enumerate([queue, other] * 4)]
        assert tokens == sorted(set(tokens))

    def test_shared_requests_are_held_together_and_do_not_overtake(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        first, second = queue.request(ask("r1", scopes=SHARED)), other.request(ask("r2", scopes=SHARED))
        alone = other.request(ask("r3"))
        late = queue.request(ask("r4", scopes=SHARED))
        assert holds(queue, first)
        assert holds(other, second)
        assert waits_for(other, alone) == [first.id, second.id]
        assert waits_for(queue, late) == [alone.id]

    def test_disjoint_partitions_are_held_together(self, queue: LossyQueue, other: LossyQueue) -> None:
        first = queue.request(ask("r1", scopes=part("p=1")))
        second = other.request(ask("r2", scopes=part("p=2")))
        below = other.request(ask("r3", scopes=part("p=1/q=1")))
        assert holds(queue, first)
        assert holds(other, second)
        assert waits_for(other, below) == [first.id]

    def test_several_tables_are_held_at_once_in_any_order(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        both = [Scope.of(A, None), Scope.of(B, None)]
        first, second = (
            queue.request(ask("r1", scopes=both)),
            other.request(ask("r2", scopes=both[::-1])),
        )
        on_b = other.request(ask("r3", scopes=part("p=1", table=B)))
        assert holds(queue, first)
        assert waits_for(other, second) == [first.id]
        assert waits_for(other, on_b) == [first.id, second.id]
        queue.release(first)
        assert holds(other, second)

    def test_a_task_is_covered_by_the_lease_of_its_run(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        lease, rival = queue.request(ask("r1", label="setup")), other.request(ask("r2"))
        task = other.request(ask("r1", "t", scopes=part("p=1")))
        assert holds(queue, lease)
        assert holds(other, task)
        assert waits_for(other, rival) == [lease.id, task.id]
        assert task.order_token == f"{lease.order_token}.{task.token}"

    def test_a_task_whose_covering_lease_ends_meanwhile_is_queued_last(
        self, open_queue: OpenQueue, queue: LossyQueue, other: LossyQueue
    ) -> None:
        lease, rival = queue.request(ask("r1", label="setup")), other.request(ask("r2"))
        late = open_queue()
        late.way.before("create", lambda: queue.release(lease))
        task = late.request(ask("r1", "t"))
        assert holds(other, rival)
        assert waits_for(late, task) == [rival.id]

    def test_of_two_concurrent_requests_of_one_owner_one_waits(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        queue.way.before("create", lambda: other.request(ask("r1", "t", name="first")))
        second = queue.request(ask("r1", "t"))
        assert waits_for(queue, second) == ["first"]

    def test_a_second_lease_is_refused_and_leaves_nothing(self, queue: LossyQueue) -> None:
        queue.request(ask("r1", label="setup", scopes=part("p=1")))
        with pytest.raises(LeaseRefusedError, match="Remedy"):
            queue.request(ask("r1", "t", scopes=part("p=2")))
        assert len(queue.requests()) == 1

    def test_a_new_request_withdraws_what_it_supersedes(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        first, rival = queue.request(ask("r1", "t")), queue.request(ask("r2"))
        anew = other.request(ask("r1", "t", scopes=SHARED, instead_of=[first.id]))
        assert [queued.request.id for queued in queue.requests()] == [rival.id, anew.id]
        with pytest.raises(LeaseLostError):
            queue.status(first)
        assert holds(queue, rival)

    def test_of_a_request_queued_twice_the_earlier_is_adopted(
        self, queue: LossyQueue, other: LossyQueue, open_queue: OpenQueue
    ) -> None:
        request = ask("r1")
        tickets: list[Ticket] = []
        queue.way.before("create", lambda: tickets.append(other.request(request)))
        assert queue.request(request).token == tickets[0].token
        assert open_queue().request(request).token == tickets[0].token
        assert len(queue.requests()) == 1

    def test_a_ticket_passes_from_process_to_process(
        self, open_queue: OpenQueue, queue: LossyQueue
    ) -> None:
        ticket = queue.request(ask("r1"))
        for epoch in range(2, 5):
            ticket = open_queue().adopt(Ticket.from_json(ticket.to_json()))
            assert ticket.epoch == epoch
        last = open_queue()
        ticket = last.adopt(ticket)
        last.ensure_held(ticket)

    def test_only_one_of_two_processes_adopts(
        self, queue: LossyQueue, other: LossyQueue, open_queue: OpenQueue
    ) -> None:
        old = queue.request(ask("r1"))
        third = open_queue()
        other.way.before("replace", lambda: third.adopt(old))
        with pytest.raises(LeaseLostError):
            other.adopt(old)

    def test_an_old_ticket_releases_nothing(self, queue: LossyQueue, other: LossyQueue) -> None:
        old = queue.request(ask("r1"))
        new = other.adopt(old)
        assert queue.release(old) is False
        assert holds(other, new)
        assert other.release(new) is True
        assert other.release(new) is False

    def test_ensure_held_raises_for_a_waiter_and_a_removed_request(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        queue.ensure_held(ticket)
        with pytest.raises(LeaseLostError, match="it is blocked by dag / r1"):
            other.ensure_held(rival)
        queue.release(ticket)
        other.ensure_held(rival)
        with pytest.raises(LeaseLostError, match="it was removed"):
            queue.ensure_held(ticket)

    def test_an_evicted_request_is_lost(self, queue: LossyQueue, other: LossyQueue) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        (first, _) = other.requests(A)
        queue.renew(ticket)
        assert other.evict(first) is True
        assert other.evict(first) is False
        assert holds(other, rival)
        with pytest.raises(LeaseLostError):
            queue.renew(ticket)

    def test_a_revoked_request_blocks_until_it_is_evicted_and_says_by_whom(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        queue.ensure_held(ticket)
        (first, _) = other.requests(A)
        assert other.revoke(first, "ann@node.example at noon") is True
        with pytest.raises(LeaseLostError, match=r"was released by force by ann@node\.example at noon"):
            queue.renew(ticket)
        assert queue.release(ticket) is False
        assert not holds(other, rival)
        assert other.evict(first) is True
        assert other.revoke(first, "ann") is False
        assert holds(other, rival)

    def test_a_revoked_request_is_queued_anew(self, queue: LossyQueue, other: LossyQueue) -> None:
        request = ask("r1")
        ticket, rival = queue.request(request), other.request(ask("r2"))
        (first, _) = other.requests(A)
        other.revoke(first, "ann")
        again = queue.request(request)
        assert again.token > ticket.token
        assert other.evict(first) is False
        assert holds(other, rival)
        assert waits_for(queue, again) == [rival.id]

    def test_a_closed_queue_leaves_its_requests(self, open_queue: OpenQueue, other: LossyQueue) -> None:
        leaving = open_queue()
        ticket = leaving.request(ask("r1"))
        leaving.close()
        assert [queued.request.id for queued in other.requests()] == [ticket.id]

    def test_wake_is_called_on_a_deletion_and_not_on_renewals(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        woken = threading.Event()
        assert not other.status(rival, woken.set).held
        for _ in range(3):
            queue.renew(ticket)
        third = queue.request(ask("r3"))
        queue.release(third)
        assert not woken.wait(0.3)
        queue.release(ticket)
        assert woken.wait(5)
        assert holds(other, rival)

    def test_a_watch_whose_answer_was_lost_is_set_again(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        woken = threading.Event()
        other.way.lose("on_delete", carried_out=False)
        with pytest.raises(LockUnreachableError):
            other.status(rival, woken.set)
        assert not other.status(rival, woken.set).held
        queue.release(ticket)
        assert woken.wait(5)

    def test_a_predecessor_that_ends_before_it_is_watched_is_noticed(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        other.way.before("on_delete", lambda: queue.release(ticket))
        woken = threading.Event()
        assert other.status(rival, woken.set).held or woken.wait(5)
        assert holds(other, rival)


class ExpiryContract:
    """The tests of requests that expire by the observer's clock.

    Subclass them as ``TestMyExpiry``.
    """

    def test_an_expired_request_is_removed_after_its_term(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        dead, rival = queue.request(ask("r1", ttl_ms=3000)), other.request(ask("r2"))
        assert not holds(other, rival)
        assert not check_until_held(other, rival, 3.0)
        assert check_until_held(other, rival, 2.0)
        with pytest.raises(LeaseLostError):
            queue.renew(dead)

    def test_a_renewed_request_stays(self, queue: LossyQueue, other: LossyQueue) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        for _ in range(12):
            other.clock.s += 1.0
            queue.renew(ticket)
            assert not holds(other, rival)
        queue.ensure_held(ticket)

    def test_a_renewal_wins_over_a_removal(self, queue: LossyQueue, other: LossyQueue) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        other.way.before("delete", lambda: queue.renew(ticket))
        assert not check_until_held(other, rival, 5.0)
        assert "delete" in other.way.calls
        queue.ensure_held(ticket)

    def test_a_claim_lasts_until_the_first_renewal_after_an_adoption(
        self, queue: LossyQueue, other: LossyQueue, open_queue: OpenQueue
    ) -> None:
        """A driver may live on the term of the process before."""
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        queue.renew(ticket, 60_000)
        adopting = open_queue()
        adopted = adopting.adopt(ticket)
        assert not check_until_held(other, rival, 30.0)
        adopting.renew(adopted)
        assert not holds(other, rival)
        assert check_until_held(other, rival, 5.0)

    def test_an_unseen_outage_counts_as_one_renewal_period(
        self, queue: LossyQueue, other: LossyQueue
    ) -> None:
        ticket, rival = queue.request(ask("r1")), other.request(ask("r2"))
        assert not check_until_held(other, rival, 1.0)
        other.clock.s += 70.0
        assert not check_until_held(other, rival, 0.0)
        assert not check_until_held(other, rival, 1.0)
        queue.renew(ticket)
        queue.ensure_held(ticket)
