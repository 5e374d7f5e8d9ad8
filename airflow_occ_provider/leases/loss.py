"""The loss of a lease: the check that finds it, and its error."""

from __future__ import annotations

from collections.abc import Callable

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases.lease import LeaseService, Ticket


def confirm_held(
    service: LeaseService, ticket: Ticket, lost: Callable[[Ticket, str], LeaseLostError]
) -> None:
    """Renew a request and raise an error if it is blocked.

    :param service: where it is queued.
    :param ticket: of the request.
    :param lost: returns the error, for the ticket and the cause.
    """
    service.renew(ticket)
    if found := service.status(ticket).blockers:
        raise lost(ticket, f"it is blocked by {found[0].queued.request.owner}")


def lease_lost(ticket: Ticket, cause: str, limit: str) -> LeaseLostError:
    """Return the error for a lost lease.

    :param ticket: of the request.
    :param cause: what happened to the request.
    :param limit: how long the lease service waits for a renewal, such as ``the lease's TTL``.
    """
    return LeaseLostError(
        f"the lease of request {ticket.id} is lost: {cause}",
        remedy="no action if the task is retried; if it happens again, check whether its processes "
        f"pause for longer than {limit}",
    )
