"""``MetastoreLeases``: one line per table over a metastore's locks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.metastore import request_lock
from airflow_occ_provider.leases.metastore.locks import LockGoneError, Locks
from airflow_occ_provider.leases.metastore.poller import Poller
from airflow_occ_provider.leases.metastore.request_lock import Epoch, Look, Seat
from airflow_occ_provider.leases.observer import TRUSTED
from airflow_occ_provider.leases.own_run import came_beside, refuse_older, umbrella
from airflow_occ_provider.leases.rules import Owner, Request, Standing, blockers

_T = TypeVar("_T")
_LOOKS = 20
_PAUSE_S = 0.1


class MetastoreLeases:
    """A ``LeaseService`` over the locks of a Hive metastore. Threads may share it.

    The metastore gives the order and drops who sends no heartbeat. Who holds is told by the rules
    over the line that it shows: it has no word for a task that passes under its run's lease, nor for
    a request that goes from process to process, and Hive 2 lets a shared lock overtake an exclusive
    one that waits (``TxnHandler.LockInfoComparator``). Its own grants tell of strangers' locks only.
    Locks of Hudi's own are elsewhere.

    :param locks: of the lease database.
    :param timeout_ms: milliseconds without a heartbeat after which the metastore drops a lock.
    :param poll_s: seconds between two looks for those who wait.
    :param clock: seconds that never go back.
    """

    def __init__(
        self,
        locks: Locks,
        timeout_ms: int,
        *,
        poll_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._locks = locks
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._mark = uuid.uuid4().hex
        self._poller = Poller(self._there, poll_s)

    @property
    def reaper(self) -> str:
        """Who removes the dead, and when, in words for people."""
        return (
            f"Who dies leaves the line when the metastore drops his lock, {self._timeout_ms / 1000:g} s "
            "after his last heartbeat, at its next look for such locks."
        )

    def request(self, asked: Request) -> Ticket:
        """Stand in line; asked again with the same id, take the first request over."""
        while True:
            look = self._look()
            line = look.line
            refuse_older(asked, line)
            same = [one for one in line if one.request.id == asked.id]
            with suppress(LeaseLostError):
                if not same:
                    self._stand(asked, line)
                elif came_beside(first := same[0], line):
                    self._give_up(first, asked)
                else:
                    for twin in same[1:]:
                        self._give_up(twin, asked)
                    ticket = Ticket(asked.id, first.name, first.token, 0)
                    self._confirm(ticket, look)
                    return self._adopt(ticket, asked)

    def status(self, ticket: Ticket, wake: Callable[[], None] | None = None) -> Status:
        """Tell where the request stands."""
        for _ in range(_LOOKS):
            asked_s = self._clock()
            look = self._look()
            seat = self._own(ticket, look)
            is_granted = self._beat(ticket, seat.epochs, self._locks.check)
            found = blockers(seat.standing, look.line)
            if not (found or is_granted):
                found = look.strangers(seat.standing)
            # A grant that took too long to be told may be over: it is asked for again.
            if is_granted and not found and self._clock() - asked_s < self._trusted_s:
                return Status()
            if found:
                if wake:
                    self._poller.watch(ticket.token, found[-1].standing.token, wake)
                return Status(found)
            time.sleep(_PAUSE_S)
        raise LockUnreachableError(
            f"the Hive metastore lets request {ticket.id} wait, but shows nobody before it",
            remedy="look at its log, and at SHOW LOCKS in Hive",
        )

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:  # noqa: ARG002
        """Show that its owner lives. The time to live is the metastore's."""
        epochs = request_lock.epochs(self._locks.rows(request_lock.epoch_table(ticket.token)))
        if (epochs[-1].number if epochs else 1) != ticket.epoch:
            raise self._lost(ticket, "another process took it over, or it was removed")
        self._beat(ticket, epochs, self._locks.heartbeat)

    def sweep(self, ticket: Ticket) -> None:
        """Do nothing: the dead are the metastore's to remove."""

    def ensure_held(self, ticket: Ticket) -> None:
        """Return if the lease is held, by the metastore's own word."""
        self.renew(ticket)
        found = self.status(ticket).blockers
        if found:
            raise self._lost(ticket, f"it waits for {found[0].standing.request.owner}")

    def adopt(self, ticket: Ticket) -> Ticket:
        """Take the request over from another process, whose ticket is refused from then on."""
        return self._adopt(ticket)

    def release(self, ticket: Ticket) -> bool:
        """Leave the line; whether the request was still there and the ticket's."""
        with suppress(LeaseLostError):
            self._leave(self._adopt(ticket))
            return True
        return False

    def evict(self, standing: Standing) -> bool:
        """Remove a request by force, whoever owns it; whether it was there.

        Its owner learns it with his next renewal, not before: he may be writing.
        """
        is_there = standing.token in self._there()
        self._locks.unlock(standing.token)
        return is_there

    def line(self, table: str | None = None) -> tuple[Standing, ...]:
        """Return who stands in line, eldest first."""
        line = self._look().line
        return tuple(one for one in line if table is None or table in one.request.tables)

    def own_run(self, owner: Owner) -> tuple[Standing, ...]:
        """Return the requests of an owner's run, eldest first."""
        return tuple(one for one in self._look().line if one.request.owner.is_of_run(owner))

    def living(self, table: str) -> tuple[Standing, ...]:
        """Return who stands in line for a table; the dead are the metastore's to remove."""
        return self.line(table)

    def close(self) -> None:
        """End the connection; what was requested stays until the metastore drops it."""
        self._poller.close()
        self._locks.close()

    @property
    def _trusted_s(self) -> float:
        return self._timeout_ms / 1000 * TRUSTED

    def _look(self) -> Look:
        return request_lock.read(self._locks.rows())

    def _there(self) -> Collection[int]:
        look = self._look()
        return {*look.seats, *(row.lock_id for row in look.foreign)}

    def _stand(self, asked: Request, line: Sequence[Standing]) -> None:
        for one in line:
            if one.request.id in asked.supersedes:
                self._give_up(one, asked)
        over = umbrella(asked, [one for one in line if one.request.owner != asked.owner])
        parts = request_lock.parts(asked, round(time.time() * 1000), over.order if over else ())
        agent = request_lock.agent(self._mark, asked.incarnation)
        self._locks.lock(parts, request_lock.who(asked.owner), agent)

    def _give_up(self, standing: Standing, asked: Request) -> None:
        """Remove a request of the task's own, unless a younger try took it over."""
        with suppress(LeaseLostError):
            self._leave(
                self._adopt(Ticket(standing.request.id, standing.name, standing.token, 0), asked)
            )

    def _leave(self, adopted: Ticket) -> None:
        """Remove a request that was taken over before: another process that did so keeps it."""
        self._locks.unlock(adopted.token)
        for row in self._locks.rows(request_lock.epoch_table(adopted.token)):
            self._locks.unlock(row.lock_id)

    def _confirm(self, ticket: Ticket, look: Look) -> None:
        """Mark a request below a lease as one that came while that was there, or take it back.

        Without the mark nobody could tell later: it may have come when a rival held already.
        """
        seat = self._seat(ticket, look)
        if len(seat.standing.order) == 1 or seat.epochs:
            return
        if seat.standing.order[-2] not in look.seats:
            self._locks.unlock(ticket.token)
            raise self._lost(ticket, "the lease of its run went")
        part = request_lock.epoch_part(ticket.token, 1)
        self._locks.lock([part], request_lock.who(seat.standing.request.owner), seat.asked_by)

    def _adopt(self, ticket: Ticket, asked: Request | None = None) -> Ticket:
        """Take a request over.

        :param ticket: of the request.
        :param asked: by which its owner asked again, whatever the ticket's epoch; ``None`` for the
            ticket's own right.
        """
        while True:
            seat = self._seat(ticket, self._look())
            is_next = seat.epoch == ticket.epoch + 1
            if asked:
                refuse_older(asked, [seat.standing])
                is_next = seat.standing.request.incarnation == asked.incarnation
            if seat.mark == self._mark and is_next:
                return replace(ticket, epoch=seat.epoch)  # our own, whose answer was lost
            if seat.epoch != ticket.epoch and not asked:
                raise self._lost(ticket, "another process took it over")
            if self._begin_epoch(ticket, seat, asked or seat.standing.request):
                return replace(ticket, epoch=seat.epoch + 1)

    def _begin_epoch(self, ticket: Ticket, before: Seat, asked: Request) -> bool:
        """Take the next epoch; whether it is ours: of those who try it is the first one's."""
        self._beat(ticket, (), self._locks.heartbeat)
        part = request_lock.epoch_part(ticket.token, before.epoch + 1)
        agent = request_lock.agent(self._mark, asked.incarnation)
        lock_id, _ = self._locks.lock([part], request_lock.who(before.standing.request.owner), agent)
        after = self._look().seats.get(ticket.token)
        if not (after and after.epochs and after.epochs[-1].lock_id == lock_id):
            self._locks.unlock(lock_id)
            return False
        for earlier in before.epochs:
            self._locks.unlock(earlier.lock_id)
        return True

    def _beat(self, ticket: Ticket, epochs: Sequence[Epoch], beat: Callable[[int], _T]) -> _T:
        """Show that its owner lives, in an order in which an epoch never ends before its request."""
        try:
            told = beat(ticket.token)
            if epochs:
                self._locks.heartbeat(epochs[-1].lock_id)
        except LockGoneError:
            raise self._lost(ticket, "it was removed") from None
        return told

    def _seat(self, ticket: Ticket, look: Look) -> Seat:
        seat = look.seats.get(ticket.token)
        if seat is None:
            raise self._lost(ticket, "it was removed")
        return seat

    def _own(self, ticket: Ticket, look: Look) -> Seat:
        seat = self._seat(ticket, look)
        if seat.epoch != ticket.epoch:
            raise self._lost(ticket, "another process took it over")
        return seat

    def _lost(self, ticket: Ticket, why: str) -> LeaseLostError:
        self._poller.forget(ticket.token)
        return LeaseLostError(
            f"the lease of request {ticket.id} is lost: {why}",
            remedy="nothing, if the task is retried; if it happens again, look whether its processes "
            f"are stopped for longer than the metastore's {self._timeout_ms / 1000:g} s",
        )
