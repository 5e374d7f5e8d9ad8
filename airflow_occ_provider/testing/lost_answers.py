"""The contract of the queue over a store whose answers are lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.rules import Request
from airflow_occ_provider.testing.queue_contract import OpenQueue
from airflow_occ_provider.testing.queues import LossyQueue, ask, holds

LOST_CALLS = {
    "request": ["stamps", "create"],
    "request again": ["stamps", "read", "read latest", "replace"],
    "request anew": ["read latest", "delete", "create"],
    "request under": ["create"],
    "status": ["stamps", "read", "on_delete", "read latest", "replace"],
    "renew": ["read latest", "replace"],
    "ensure_held": ["read latest", "replace", "stamps"],
    "adopt": ["read latest", "replace"],
    "release": ["read latest", "delete"],
    "requests": ["stamps", "read"],
}


def lost_calls(calls: Mapping[str, Sequence[str]] = LOST_CALLS) -> list[Any]:
    """Return parameters for ``repeat_after_a_lost_answer``.

    :param calls: the calls of a store, by the case in which a method of the queue makes them.
    """
    return [
        pytest.param(case, call, carried_out, id=f"{case}-{call}-{'after' if carried_out else 'before'}")
        for case, names in calls.items()
        for call, carried_out in itertools.product(names, [True, False])
    ]


class LostAnswerContract:
    """The tests of a queue whose store answers too late.

    Subclass them as ``TestMyLostAnswers``.
    """

    @pytest.mark.parametrize(("method", "lost", "carried_out"), lost_calls())
    def test_every_method_can_be_repeated_after_a_lost_answer(
        self, open_queue: OpenQueue, other: LossyQueue, method: str, lost: str, carried_out: bool
    ) -> None:
        repeat_after_a_lost_answer(open_queue, other, method, lost, carried_out=carried_out)


def repeat_after_a_lost_answer(
    open_queue: OpenQueue, other: LossyQueue, case: str, lost: str, *, carried_out: bool
) -> None:
    """Lose one answer in a queue's method, repeat the method and check its effect.

    :param open_queue: opens the queue of another process.
    :param other: the queue of a process that loses nothing.
    :param case: the method and what is different about it, such as ``request again``.
    :param lost: the call of the store whose answer is lost.
    :param carried_out: whether the store carried it out.
    """
    request = ask("r1", "t", name="asked", instead_of=["before"])
    _prepare(other, case, lost)
    was_queued = not case.startswith("request") or case in {"request again", "requests"}
    ticket = other.request(request) if was_queued else None
    rival = other.request(ask("rival"))
    queue = open_queue()
    if ticket and case in {"status", "renew", "ensure_held"}:
        ticket = queue.adopt(ticket)
        queue.forget()
    do = _method(queue, case, request, ticket)
    queue.way.lose(lost, carried_out=carried_out)
    with pytest.raises(LockUnreachableError):
        do()
    answer = do()
    mine = [queued for queued in other.requests() if queued.request.id == "asked"]
    if case == "release":
        assert answer is not (carried_out and lost in {"delete", "unlock"})
        assert mine == []
        assert holds(other, rival)
        return
    assert len(mine) == 1
    assert holds(other, rival) is (case in {"request", "request anew"})
    if isinstance(answer, Ticket):
        assert (answer.name, answer.token) == (mine[0].name, mine[0].token)
        assert answer.epoch == (2 if case in {"adopt", "request again"} else 1)
        queue.renew(answer)


def _prepare(other: LossyQueue, case: str, lost: str) -> None:
    """Queue what a case needs before its own request."""
    if case == "request under":
        other.request(ask("r1", label="setup"))
    elif case == "request anew":
        other.request(ask("r1", "t", name="before"))
    elif case == "status" and lost in {"read", "on_delete"}:
        other.request(ask("earlier"))


def _method(queue: LossyQueue, case: str, request: Request, ticket: Ticket | None) -> Callable[[], Any]:
    """Return the method of a case with its arguments."""
    match case.split(maxsplit=1)[0]:
        case "request":
            return lambda: queue.request(request)
        case "requests":
            return queue.requests
        case "status":
            return lambda: queue.status(cast("Ticket", ticket), lambda: None)
        case method:
            return lambda: getattr(queue, method)(ticket)
