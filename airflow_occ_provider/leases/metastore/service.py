"""``MetastoreLeases``: the queue over a metastore's locks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from pymetastore.hive_metastore.ttypes import NoSuchLockException

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.lease import Status, Ticket
from airflow_occ_provider.leases.metastore import request_lock
from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
from airflow_occ_provider.leases.metastore.request_lock import Epoch, QueueSnapshot, RequestLock
from airflow_occ_provider.leases.observer import TRUSTED
from airflow_occ_provider.leases.poller import Poller
from airflow_occ_provider.leases.request_node import is_revoked, revoked_mark
from airflow_occ_provider.leases.rules import Owner, QueuedRequest, Request, blockers
from airflow_occ_provider.leases.run_leases import covering_lease, missed_run_lease, refuse_older

_T = TypeVar("_T")
_TRIES = 20
_PAUSE_S = 0.1


class MetastoreLeases:
    """A ``LeaseService`` over the locks of a Hive metastore. Threads may share it.

    The metastore defines the order, and drops locks without heartbeats. The rules decide what is held:
    the metastore can express neither a task that its run's lease covers nor a request that passes from
    process to process, and in Hive 2 a shared lock overtakes a waiting exclusive one
    (``TxnHandler.LockInfoComparator``). Its own grants only reveal foreign locks. Hudi's own locks are
    in another database. The metastore drops a lock after ``timeout_ms`` without a heartbeat.
    """

    def __init__(
        self,
        locks: MetastoreLocks,
        timeout_ms: int,
        *,
        poll_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._locks = locks
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._mark = uuid.uuid4().hex
        self._poller = Poller(self._lock_ids, poll_s)

    @property
    def expiry_rule(self) -> str:
        """How expired requests are removed, as a sentence for the log of a waiter."""
        return (
            f"A request is removed when the metastore drops its lock: {self._timeout_ms / 1000:g} s "
            "after its last heartbeat, at the metastore's next check for expired locks."
        )

    def request(self, asked: Request) -> Ticket:
        """Queue a request; if one with the same id is queued, adopt that one."""
        while True:
            snapshot = self._snapshot()
            queue = snapshot.requests
            refuse_older(asked, queue)
            same = [one for one in queue if one.request.id == asked.id]
            with suppress(LeaseLostError):
                if not same:
                    self._enqueue(asked, queue)
                elif missed_run_lease(first := same[0], queue):
                    self._withdraw(first, asked)
                else:
                    for duplicate in same[1:]:
                        self._withdraw(duplicate, asked)
                    ticket = Ticket(asked.id, first.name, first.token, 0)
                    self._confirm(ticket, snapshot)
                    return self._adopt(ticket, asked)

    def status(
        self,
        ticket: Ticket,
        wake: Callable[[], None] | None = None,
        *,
        age_s: float = 0.0,  # noqa: ARG002
    ) -> Status:
        """Return the request's status."""
        for _ in range(_TRIES):
            asked_s = self._clock()
            snapshot = self._snapshot()
            lock = self._request_lock(ticket, snapshot)
            if lock.epoch != ticket.epoch:
                raise self._lost(ticket, ticket.taken(lock.mark))
            is_granted = self._heartbeat(ticket, lock.epochs, self._locks.check)
            found = blockers(lock.queued, snapshot.requests)
            if not (found or is_granted):
                found = snapshot.foreign_blockers(lock.queued)
            # A grant whose answer took too long may have expired; it is checked again.
            if is_granted and not found and self._is_trusted(asked_s):
                return Status()
            if found:
                if wake:
                    self._poller.watch(ticket.token, {ticket.token, found[-1].queued.token}, wake)
                return Status(found)
            time.sleep(_PAUSE_S)
        raise LockUnreachableError(
            f"the Hive metastore does not grant request {ticket.id}, but shows no lock before it",
            remedy="check its log, and SHOW LOCKS in Hive",
        )

    def renew(self, ticket: Ticket, ttl_ms: int | None = None) -> None:  # noqa: ARG002
        """Renew the request; its TTL is the metastore's time-out."""
        asked_s = self._clock()
        lock = self._request_lock(ticket, self._snapshot())
        if lock.epoch != ticket.epoch:
            raise self._lost(ticket, ticket.taken(lock.mark))
        self._heartbeat(ticket, lock.epochs, self._locks.heartbeat)
        if not self._is_trusted(asked_s):
            self._heartbeat(ticket, lock.epochs, self._locks.heartbeat)  # the first answer came too late

    def announce(self, ticket: Ticket, instants: Sequence[str]) -> None:
        """Do nothing: a lock of the metastore cannot be changed."""

    def announced(self, ticket: Ticket, table: str) -> Mapping[str, Owner]:  # noqa: ARG002
        """Return nothing: no request announces a write."""
        return {}

    def sweep(self, ticket: Ticket) -> None:
        """Do nothing: the metastore removes expired requests."""

    def ensure_held(self, ticket: Ticket) -> None:
        """Return if the metastore confirms that the lease is held."""
        self.renew(ticket)
        if found := self.status(ticket).blockers:
            raise self._lost(ticket, f"it is blocked by {found[0].queued.request.owner}")

    def adopt(self, ticket: Ticket) -> Ticket:
        """Take the request over from another process and invalidate that one's ticket."""
        return self._adopt(ticket)

    def release(self, ticket: Ticket) -> bool:
        """Remove the request; return whether it was still there and the ticket's."""
        with suppress(LeaseLostError):
            self._delete(self._adopt(ticket))
            return True
        return False

    def revoke(self, queued: QueuedRequest, by: str) -> bool:
        """Take any owner's request from it by force; return whether it was there."""
        request = queued.request
        ticket = Ticket(request.id, queued.name, queued.token, 0)
        agent = request_lock.agent(revoked_mark(by), request.incarnation)
        for _ in range(_TRIES):
            lock = self._snapshot().locks.get(queued.token)
            if queued.unknown or lock is None or lock.queued.request.id != request.id:
                return False
            with suppress(LeaseLostError):
                if self._begin_epoch(ticket, lock, agent):
                    return True
        raise LockUnreachableError(
            f"request {request.id} was adopted at each try to revoke it",
            remedy="look at `airflow hudi leases list`, and try again",
        )

    def evict(self, queued: QueuedRequest) -> bool:
        """Remove any owner's request by force; return whether it was there."""
        lock = self._snapshot().locks.get(queued.token)
        if lock is None or lock.queued.request.id != queued.request.id:
            return False
        self._locks.unlock(queued.token)
        return True

    def requests(self, table: str | None = None) -> tuple[QueuedRequest, ...]:
        """Return all requests, earliest first."""
        queued = self._snapshot().requests
        return tuple(one for one in queued if table is None or table in one.request.tables)

    def requests_of_run(self, owner: Owner) -> tuple[QueuedRequest, ...]:
        """Return the requests of an owner's run, earliest first."""
        return tuple(one for one in self._snapshot().requests if one.request.owner.is_of_run(owner))

    def live_requests(self, table: str) -> tuple[QueuedRequest, ...]:
        """Return a table's requests; the metastore removes expired ones."""
        return self.requests(table)

    def observations(self, table: str) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: the metastore removes expired requests."""
        return {}

    def recall(self, observations: Mapping[str, Any]) -> None:
        """Do nothing: the metastore removes expired requests."""

    def close(self) -> None:
        """Close the connection; requests stay until the metastore drops them."""
        self._poller.close()
        self._locks.close()

    def _is_trusted(self, asked_s: float) -> bool:
        """Return whether a lock with a heartbeat at that moment or later cannot have expired yet."""
        return self._clock() - asked_s < self._timeout_ms / 1000 * TRUSTED

    def _snapshot(self) -> QueueSnapshot:
        return request_lock.read(self._locks.rows())

    def _lock_ids(self) -> Collection[int]:
        snapshot = self._snapshot()
        return {*snapshot.locks, *(row.lock_id for row in snapshot.foreign)}

    def _enqueue(self, asked: Request, queue: Sequence[QueuedRequest]) -> None:
        for one in queue:
            if one.request.id in asked.supersedes:
                self._withdraw(one, asked)
        lease = covering_lease(asked, [one for one in queue if one.request.owner != asked.owner])
        parts = request_lock.parts(asked, round(time.time() * 1000), lease.order if lease else ())
        agent = request_lock.agent(self._mark, asked.incarnation)
        self._locks.lock(parts, request_lock.lock_user(asked.owner), agent)

    def _withdraw(self, queued: QueuedRequest, asked: Request) -> None:
        """Remove a request of the same owner, unless a later try adopted it."""
        with suppress(LeaseLostError):
            self._delete(self._adopt(Ticket(queued.request.id, queued.name, queued.token, 0), asked))

    def _delete(self, adopted: Ticket) -> None:
        """Remove a request that this process has adopted."""
        self._locks.unlock(adopted.token)
        for row in self._locks.rows(request_lock.epoch_table(adopted.token)):
            self._locks.unlock(row.lock_id)

    def _confirm(self, ticket: Ticket, snapshot: QueueSnapshot) -> None:
        """Record that a request was queued under an existing lease.

        If its covering lease is gone, the request is removed. Without this record it might have been
        queued after the lease ended and a rival's began.
        """
        lock = self._request_lock(ticket, snapshot)
        if len(lock.queued.order) == 1 or lock.epochs:
            return
        if lock.queued.order[-2] not in snapshot.locks:
            self._locks.unlock(ticket.token)
            raise self._lost(ticket, "the lease of its run is gone")
        part = request_lock.epoch_part(ticket.token, 1)
        self._locks.lock([part], request_lock.lock_user(lock.queued.request.owner), lock.asked_by)

    def _adopt(self, ticket: Ticket, asked: Request | None = None) -> Ticket:
        """Adopt a request.

        :param ticket: of the request.
        :param asked: the owner's repeated request, valid for any epoch; ``None`` if the ticket's epoch
            must be current.
        """
        while True:
            lock = self._request_lock(ticket, self._snapshot())
            is_next = lock.epoch == ticket.epoch + 1
            if asked and is_revoked(lock.mark):  # it is queued anew
                self._delete(ticket)
                raise self._lost(ticket, ticket.taken(lock.mark))
            if asked:
                refuse_older(asked, [lock.queued])
                is_next = lock.queued.request.incarnation == asked.incarnation
            if lock.mark == self._mark and is_next:
                return replace(ticket, epoch=lock.epoch)  # an own call whose answer was lost
            if lock.epoch != ticket.epoch and not asked:
                raise self._lost(ticket, ticket.taken(lock.mark))
            agent = request_lock.agent(self._mark, (asked or lock.queued.request).incarnation)
            if self._begin_epoch(ticket, lock, agent):
                return replace(ticket, epoch=lock.epoch + 1)

    def _begin_epoch(self, ticket: Ticket, before: RequestLock, agent: str) -> bool:
        """Begin the next epoch; return whether this process was the first to do so."""
        self._heartbeat(ticket, (), self._locks.heartbeat)
        part = request_lock.epoch_part(ticket.token, before.epoch + 1)
        lock_id, _ = self._locks.lock([part], request_lock.lock_user(before.queued.request.owner), agent)
        after = self._snapshot().locks.get(ticket.token)
        if not (after and after.epochs and after.epochs[-1].lock_id == lock_id):
            self._locks.unlock(lock_id)
            return False
        for earlier in before.epochs:
            self._locks.unlock(earlier.lock_id)
        return True

    def _heartbeat(self, ticket: Ticket, epochs: Sequence[Epoch], beat: Callable[[int], _T]) -> _T:
        """Renew the request, then its epoch, so that the epoch never expires first."""
        try:
            answer = beat(ticket.token)
            if epochs:
                self._locks.heartbeat(epochs[-1].lock_id)
        except NoSuchLockException:
            raise self._lost(ticket, "it was removed") from None
        return answer

    def _request_lock(self, ticket: Ticket, snapshot: QueueSnapshot) -> RequestLock:
        lock = snapshot.locks.get(ticket.token)
        if lock is None:
            raise self._lost(ticket, "it was removed")
        # A metastore whose database was restored, or made anew, gives the id of a lock a second time.
        if lock.queued.request.id != ticket.id:
            raise self._lost(ticket, f"its lock {ticket.token} is that of {lock.queued.request.owner}")
        return lock

    def _lost(self, ticket: Ticket, why: str) -> LeaseLostError:
        self._poller.forget(ticket.token)
        return ticket.lost(why, f"the metastore's time-out of {self._timeout_ms / 1000:g} s")
