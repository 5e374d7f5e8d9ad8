"""The lease: the right to write a scope, held across processes, whoever serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases import request_node
from airflow_occ_provider.leases.rules import Blocker, Owner, Request, Standing

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a process needs to go on with a request that another one made. It holds no secret.

    :param id: of the request.
    :param name: what the lock service calls it.
    :param token: greater than those of all requests made before.
    :param epoch: raised by every adoption; a ticket of an older epoch is refused.
    """

    id: str
    name: str
    token: int
    epoch: int

    @property
    def order_token(self) -> str:
        """Where it stands among all, as text: numbers to be compared one by one.

        A task under its run's lease has the lease's number before its own.
        """
        return ".".join(map(str, request_node.order(self.name, self.token)))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, with the format's version."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Ticket:
        """Read ``to_json`` back.

        :raises ConfigurationError: for a ticket of another release's format.
        """
        if kept.get("format") != _FORMAT:
            raise ConfigurationError(
                "ticket",
                f"it has the format {kept.get('format')!r}, known is {_FORMAT}",
                remedy="clear the task that asked for the lease, so that this release asks anew",
            )
        return cls(kept["id"], kept["name"], kept["token"], kept["epoch"])


@dataclass(frozen=True, slots=True)
class Status:
    """Where a request stands.

    :param blockers: whom it waits for, eldest first.
    """

    blockers: tuple[Blocker, ...] = ()

    @property
    def held(self) -> bool:
        """Whether the lease was held when the lock service answered."""
        return not self.blockers


class LeaseService(Protocol):
    """One fair line per table.

    Every method may be repeated after an answer that was lost, waits for a bounded time only, and
    raises ``LockUnreachableError`` where the service does not answer in it. A lease that is not
    renewed within its time to live is removed, by those who wait for it or by the service. Between
    the look and what the caller does with it time passes: a lease orders writers, Hudi's commit check
    is the fence.
    """

    @property
    def reaper(self) -> str:
        """Who removes the dead, and when, in words for who waits."""

    def request(self, asked: Request) -> Ticket:
        """Stand in line; asked again with the same id, take the first request over.

        An earlier request of the same owner with another id is given up.

        :raises LeaseRefusedError: if the owner's run holds a lease that does not cover it.
        """

    def status(self, ticket: Ticket, wake: Callable[[], None] | None = None) -> Status:
        """Tell where the request stands, and remove who is dead before it.

        :param ticket: of the request.
        :param wake: called once, in any thread, when the answer may have changed.
        :raises LeaseLostError: if it does not stand in line any more, or another process took it over.
        """

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:
        """Show that its owner lives.

        :param ticket: of the request.
        :param ttl_ms: milliseconds for which it shall stand unrenewed; by default as requested.
        :raises LeaseLostError: as for ``status``.
        """

    def sweep(self, ticket: Ticket) -> None:
        """Remove who is dead right before the request, though it does not wait for him.

        So what dead owners leave does not grow where nobody conflicts. Called with every renewal.
        """

    def ensure_held(self, ticket: Ticket) -> None:
        """Return if the lease is held, by the lock service's own word.

        :raises LeaseLostError: if it is not.
        """

    def adopt(self, ticket: Ticket) -> Ticket:
        """Take the request over from another process, whose ticket is refused from then on.

        :raises LeaseLostError: if it is gone, or somebody else took it over.
        """

    def release(self, ticket: Ticket) -> bool:
        """Leave the line; whether the request was still there and the ticket's.

        Who waited only is forgotten; who held lets the next one in.
        """

    def evict(self, standing: Standing) -> bool:
        """Remove a request by force, whoever owns it; whether it was there.

        Its owner learns it with his next renewal, not before: he may be writing.

        :param standing: the request.
        """

    def line(self, table: str | None = None) -> tuple[Standing, ...]:
        """Return who stands in line, eldest first.

        :param table: canonical base path of one table; ``None`` for all.
        """

    def own_run(self, owner: Owner) -> tuple[Standing, ...]:
        """Return the requests of an owner's run, eldest first.

        :param owner: any of the run.
        """

    def living(self, table: str) -> tuple[Standing, ...]:
        """Return who stands in line for a table, and remove who is dead: that takes looks for a term.

        :param table: canonical base path.
        """

    def close(self) -> None:
        """End the connection; what was requested stays until its time to live is over."""
