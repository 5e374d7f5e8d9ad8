"""The lease, the right to write a scope: its ticket, status and service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from airflow_occ_provider.errors import ConfigurationError, LeaseLostError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.rules import Blocker, Owner, QueuedRequest, Request

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
    def from_json(cls, kept: Mapping[str, Any]) -> Ticket:
        """Return the ticket that ``to_json`` described.

        :raises ConfigurationError: if the ticket has another release's format.
        """
        if kept.get("format") != _FORMAT:
            raise ConfigurationError(
                "ticket",
                f"its format {kept.get('format')!r} is unknown, this release reads {_FORMAT}",
                remedy="clear the task that requested the lease, so that it requests a new one",
            )
        return cls(kept["id"], kept["name"], kept["token"], kept["epoch"])


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

    def __str__(self) -> str:
        """Describe it and what the request is blocked by, earliest first."""
        if self.held:
            return "The lease is held."
        named = "; ".join(map(str, self.blockers[:_MAX_NAMED]))
        more = len(self.blockers) - _MAX_NAMED
        count = f"{len(self.blockers)} earlier request{'s' if len(self.blockers) > 1 else ''}"
        return f"Blocked by {count}: {named}{f'; and {more} more' if more > 0 else ''}."


class LeaseService(Protocol):
    """One fair queue per table.

    Every method can be repeated if its answer was lost, and waits for a bounded time. It raises
    ``LockUnreachableError`` if the service does not answer in that time. A request that is not renewed
    within its TTL is removed by a waiter or by the service. An answer may be out of date when the
    caller acts on it: a lease orders writers, Hudi's commit check is the fence.
    """

    @property
    def expiry_rule(self) -> str:
        """How expired requests are removed, as a sentence for the log of a waiter."""

    def request(self, asked: Request) -> Ticket:
        """Queue a request; if one with the same id is queued, adopt that one.

        The requests that it supersedes are withdrawn.

        :raises LeaseRefusedError: if the owner's run holds a lease that does not cover the request, or
            a later try of the owner is queued.
        """

    def status(
        self, ticket: Ticket, wake: Callable[[], None] | None = None, *, age_s: float = 0.0
    ) -> Status:
        """Return the request's status, after removing expired requests before it.

        :param ticket: of the request.
        :param wake: called once, in any thread, when the status may have changed.
        :param age_s: seconds that the answer may be old, if that saves a request. A held lease stays
            held until its request is removed, so that no answer of an earlier moment grants too much.
        :raises LeaseLostError: if the request is gone, or another process adopted it.
        """

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:
        """Renew the request.

        :param ticket: of the request.
        :param ttl_ms: milliseconds until it expires without another renewal. Default: as requested.
        :raises LeaseLostError: as for ``status``.
        """

    def announce(self, ticket: Ticket, instants: Sequence[str]) -> None:
        """Record in the request which writes its owner has begun.

        A service whose requests cannot be changed records nothing.

        :param instants: requested times, in place of those that were announced before.
        :raises LeaseLostError: as for ``status``.
        """

    def announced(self, ticket: Ticket, table: str) -> Mapping[str, Owner]:
        """Return the owners of the writes that a table's other requests have announced.

        :param table: canonical base path.
        """

    def sweep(self, ticket: Ticket) -> None:
        """Remove the request's direct predecessor if it has expired.

        Expired requests therefore do not pile up when no request conflicts with them. Call it with
        every renewal.
        """

    def ensure_held(self, ticket: Ticket) -> None:
        """Return if the lock service confirms that the lease is held.

        :raises LeaseLostError: if it is not.
        """

    def adopt(self, ticket: Ticket) -> Ticket:
        """Take the request over from another process and invalidate that one's ticket.

        :raises LeaseLostError: if the request is gone, or another process adopted it.
        """

    def release(self, ticket: Ticket) -> bool:
        """Remove the request; return whether it was still there and the ticket's."""

    def revoke(self, queued: QueuedRequest, by: str) -> bool:
        """Take any owner's request from it by force; return whether it was there.

        The owner reads the account at its next renewal, and stops. Until it is evicted, or expires, the
        request still blocks others. If the owner requests it again, it is queued anew.

        :param queued: the request.
        :param by: the account, and when, as text.
        """

    def evict(self, queued: QueuedRequest) -> bool:
        """Remove any owner's request by force; return whether it was there.

        Its owner notices at its next renewal, and may be writing until then.

        :param queued: the request.
        """

    def requests(self, table: str | None = None) -> tuple[QueuedRequest, ...]:
        """Return all requests, earliest first, with the times of their last renewals.

        :param table: canonical base path of one table; ``None`` for all tables.
        """

    def requests_of_run(self, owner: Owner) -> tuple[QueuedRequest, ...]:
        """Return the requests of an owner's run, earliest first.

        :param owner: any owner of the run.
        """

    def live_requests(self, table: str) -> tuple[QueuedRequest, ...]:
        """Return a table's requests, after removing expired ones.

        A request is known to be expired only after calls over a whole term, of this process or of an
        earlier one whose observations it recalls.

        :param table: canonical base path.
        """

    def observations(self, table: str) -> dict[str, Any]:
        """Return what this process has observed of a table's requests, as JSON values.

        Processes that look once each pass it on, or a dead request never expires for them.

        :param table: canonical base path.
        """

    def recall(self, observations: Mapping[str, Any]) -> None:
        """Continue from what an earlier process observed.

        :param observations: what ``observations`` returned there; not empty.
        """

    def close(self) -> None:
        """Close the connection; requests stay until they expire."""
