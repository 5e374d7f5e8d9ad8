"""Services that are wrong in one thing each: the witness has to find them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.metastore.request_lock import Epoch, Look, Seat
from airflow_occ_provider.leases.metastore.service import MetastoreLeases


class BelievesTheMetastoreAlone(MetastoreLeases):
    """It has no word for who passes under a lease."""

    def status(self, ticket: Ticket, wake: Callable[[], None] | None = None) -> Status:
        said = super().status(ticket, wake)
        return Status() if self._locks.check(ticket.token) else said


class MarksNothing(MetastoreLeases):
    """Whoever asked below a lease passes under it, though it went before."""

    def _confirm(self, ticket: Ticket, look: Look) -> None:
        pass


class TakesAnyEpoch(MetastoreLeases):
    """It does not look who else took the same epoch."""

    def _begin_epoch(self, ticket: Ticket, before: Seat) -> bool:
        super()._begin_epoch(ticket, before)
        return True


class BeatsForItsRequestOnly(MetastoreLeases):
    """The lock of the epoch is dropped while the request's stands."""

    def _beat(self, ticket: Ticket, epochs: Sequence[Epoch], beat: Callable[[int], Any]) -> Any:
        return super()._beat(ticket, (), beat)


class AsksAgainAnew(MetastoreLeases):
    """A request that is asked again stands in line twice."""

    def _adopt(self, ticket: Ticket, *, any_epoch: bool = False) -> Ticket:
        if any_epoch:
            return self._stand(self._look().seats[ticket.token].standing.request, None)
        return super()._adopt(ticket)


MUTANTS = [
    BelievesTheMetastoreAlone,
    MarksNothing,
    TakesAnyEpoch,
    BeatsForItsRequestOnly,
    AsksAgainAnew,
]
