"""Services with one fault each, which the witness must find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.metastore import request_lock
from airflow_occ_provider.leases.metastore.request_lock import Epoch, QueueSnapshot, RequestLock
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from airflow_occ_provider.leases.rules import Request


class BelievesTheMetastoreAlone(MetastoreLeases):
    """It ignores that a request passes under a lease."""

    def status(
        self, ticket: Ticket, wake: Callable[[], None] | None = None, *, age_s: float = 0.0
    ) -> Status:
        said = super().status(ticket, wake, age_s=age_s)
        return Status() if self._locks.check(ticket.token) else said


class MarksNothing(MetastoreLeases):
    """A request made below a lease passes under it, though the lease was released before."""

    def _confirm(self, ticket: Ticket, snapshot: QueueSnapshot) -> None:
        pass


class TakesAnyEpoch(MetastoreLeases):
    """It does not check whether another process took the same epoch."""

    def _begin_epoch(self, ticket: Ticket, before: RequestLock, asked: Request) -> bool:
        super()._begin_epoch(ticket, before, asked)
        return True


class BeatsForItsRequestOnly(MetastoreLeases):
    """The epoch's lock is dropped while the request's is held."""

    def _heartbeat(self, ticket: Ticket, epochs: Sequence[Epoch], beat: Callable[[int], Any]) -> Any:
        return super()._heartbeat(ticket, (), beat)


class AsksAgainAnew(MetastoreLeases):
    """A request that is made again is queued twice."""

    def _adopt(self, ticket: Ticket, asked: Request | None = None) -> Ticket:
        if asked is None or self._snapshot().locks[ticket.token].mark == self._mark:
            return super()._adopt(ticket, asked)
        parts, who = request_lock.parts(asked, 0), request_lock.lock_user(asked.owner)
        lock_id, _ = self._locks.lock(parts, who, request_lock.agent(self._mark, asked.incarnation))
        return Ticket(asked.id, request_lock.name(lock_id, ()), lock_id, 1)


MUTANTS = [
    BelievesTheMetastoreAlone,
    MarksNothing,
    TakesAnyEpoch,
    BeatsForItsRequestOnly,
    AsksAgainAnew,
]
