"""Pure: the relation of a request to the other requests of its own run."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_occ_provider.errors import LeaseRefusedError
from airflow_occ_provider.leases.rules import QueuedRequest, Request


def covering_lease(asked: Request, queue: Iterable[QueuedRequest]) -> QueuedRequest | None:
    """Return the lease of the request's own run that covers it, if there is one.

    :raises LeaseRefusedError: if none covers it, or a later one conflicts with it: waiting while
        holding could deadlock.
    """
    of_run = [one for one in queue if asked.owner.is_within(one.request.owner)]
    for one in sorted(of_run, key=lambda queued: queued.order, reverse=True):
        if all(any(held.covers(scope) for held in one.request.scopes) for scope in asked.scopes):
            return one
        if any(held.conflicts_with(scope) for held in one.request.scopes for scope in asked.scopes):
            break
    if not of_run:
        return None
    leased = "; ".join(str(scope) for one in of_run for scope in one.request.scopes)
    raise LeaseRefusedError(
        f"{asked.owner} requests {'; '.join(map(str, asked.scopes))}, but {of_run[0].request.owner} "
        f"already has a lease, on {leased}",
        remedy="name every table and partition in that one lease; a second lease of the run could "
        "deadlock with the first",
    )


def refuse_older(asked: Request, queue: Iterable[QueuedRequest]) -> None:
    """Refuse a request if a later try of its owner is queued."""
    for one in queue:
        theirs = one.request
        is_own = theirs.id in (asked.id, *asked.supersedes)
        if is_own and theirs.incarnation > asked.incarnation:
            raise LeaseRefusedError(
                f"{asked.owner}: try {asked.incarnation} requests a lease, but try "
                f"{theirs.incarnation} is queued",
                remedy="no action: the later try does the work",
            )


def missed_run_lease(mine: QueuedRequest, queue: Iterable[QueuedRequest]) -> bool:
    """Return whether a request was created before it saw its run's earlier lease.

    Two requests that are created at the same time do not see each other before both are queued. The
    later one must then be withdrawn: it could be blocked by a request that the earlier one blocks.
    """
    owner = mine.request.owner
    return len(mine.order) == 1 and any(
        one.token < mine.token and owner.is_within(one.request.owner) and owner != one.request.owner
        for one in queue
    )
