"""Pure: what a request has to do with the other requests of its own run and task."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_occ_provider.errors import LeaseRefusedError
from airflow_occ_provider.leases.rules import Request, Standing


def umbrella(asked: Request, line: Iterable[Standing]) -> Standing | None:
    """Return the lease of its own run under which a request passes, if there is one.

    :param asked: the request.
    :param line: all requests.
    :raises LeaseRefusedError: if its run has leases, but none that covers it: who waits while
        holding can be waited for in a circle.
    """
    over = [one for one in line if asked.owner.is_within(one.request.owner)]
    for one in sorted(over, key=lambda standing: standing.order, reverse=True):
        if all(any(has.covers(scope) for has in one.request.scopes) for scope in asked.scopes):
            return one
        if any(has.conflicts_with(scope) for has in one.request.scopes for scope in asked.scopes):
            break
    if not over:
        return None
    held = "; ".join(str(scope) for one in over for scope in one.request.scopes)
    raise LeaseRefusedError(
        f"{asked.owner} asks for {'; '.join(map(str, asked.scopes))}, but {over[0].request.owner} "
        f"has a lease already, on {held}",
        remedy="name every table and partition in that one lease; a second one beside it could wait "
        "for somebody who waits for the first",
    )


def refuse_older(asked: Request, line: Iterable[Standing]) -> None:
    """Refuse the request of a try that is older than one in line.

    :param asked: the request.
    :param line: all requests.
    :raises LeaseRefusedError: with both tries.
    """
    for one in line:
        theirs = one.request
        is_own = theirs.id in (asked.id, *asked.supersedes)
        if is_own and theirs.incarnation > asked.incarnation:
            raise LeaseRefusedError(
                f"{asked.owner}: try {asked.incarnation} asks for a lease, but try "
                f"{theirs.incarnation} stands in line",
                remedy="nothing: the younger try does the work",
            )


def came_beside(mine: Standing, line: Iterable[Standing]) -> bool:
    """Whether an elder lease of its own run was overlooked when a request was made.

    Two requests that are made at once do not see each other before they stand in line. The younger
    one has to leave then: it could wait for a request that waits for the elder.

    :param mine: the request.
    :param line: all requests.
    """
    owner = mine.request.owner
    return len(mine.order) == 1 and any(
        one.token < mine.token and owner.is_within(one.request.owner) and owner != one.request.owner
        for one in line
    )
