"""The lease, the right to write a scope: its terms, ticket and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from airflow_occ_provider.errors import ConfigurationError, LeaseLostError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.rules import Blocker, all_hold

_FORMAT = 1
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class Terms:
    """The TTLs of a lease.

    :param ttl_ms: milliseconds, while a process renews the lease.
    :param claim_ttl_ms: milliseconds, while the lease passes from one process to the next.
    """

    ttl_ms: int
    claim_ttl_ms: int


@dataclass(frozen=True, slots=True)
class Ticket:
    """A reference to a request, passed from process to process. It holds no secret.

    :param id: of the request.
    :param name: its name in the lock service.
    :param token: greater than the tokens of all earlier requests.
    :param epoch: raised by every adoption; a ticket of an older epoch is refused.
    """

    id: str
    name: str
    token: int
    epoch: int

    @property
    def order_token(self) -> str:
        """Its position as text: numbers separated by dots, compared one by one.

        If the lease of its run covers a task, the lease's number comes before the task's own.
        """
        return ".".join(map(str, request_node.order(self.name, self.token)))

    @staticmethod
    def taken(mark: str) -> str:
        """Return the cause of the loss to another epoch.

        :param mark: of the process that began that epoch.
        """
        return f"it was {mark}" if request_node.is_revoked(mark) else "another process adopted it"

    def lost(self, cause: str, limit: str) -> LeaseLostError:
        """Return the error for the loss of its lease.

        :param cause: what happened to the request.
        :param limit: how long the lease service waits for a renewal, such as ``the lease's TTL``.
        """
        return LeaseLostError(
            f"the lease of request {self.id} is lost: {cause}",
            remedy="no action if the task is retried; if it happens again, check whether its processes "
            f"pause for longer than {limit}",
        )

    def to_json(self) -> dict[str, Any]:
        """Return the ticket as JSON values, with the format's version."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, ticket: Mapping[str, Any]) -> Ticket:
        """Return the ticket that ``to_json`` described.

        :raises ConfigurationError: if the ticket has another release's format.
        """
        if ticket.get("format") != _FORMAT:
            raise ConfigurationError(
                "ticket",
                f"its format {ticket.get('format')!r} is unknown, this release reads {_FORMAT}",
                remedy="clear the task that requested the lease, so that it requests a new one",
            )
        return cls(ticket["id"], ticket["name"], ticket["token"], ticket["epoch"])


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a request in the queue.

    :param blockers: what it is blocked by, earliest first.
    """

    blockers: tuple[Blocker, ...] = ()

    @property
    def held(self) -> bool:
        """Whether the lease was held when the lock service answered."""
        return not self.blockers

    @property
    def is_next(self) -> bool:
        """Whether all that blocks the request holds, as far as that alone shows."""
        return all_hold([blocker.queued for blocker in self.blockers])

    def ends_wait(self, *, until_next: bool) -> bool:
        """Whether a task that waits for the lease may go on.

        :param until_next: whether it may do so once the request is the next one.
        """
        return self.held or (until_next and self.is_next)

    def __str__(self) -> str:
        """Describe it and what the request is blocked by, earliest first."""
        if self.held:
            return "The lease is held."
        named = "; ".join(map(str, self.blockers[:_MAX_NAMED]))
        more = len(self.blockers) - _MAX_NAMED
        count = f"{len(self.blockers)} earlier request{'s' if len(self.blockers) > 1 else ''}"
        return f"Blocked by {count}: {named}{f'; and {more} more' if more > 0 else ''}."
