"""A task run's request in its tables' queue, kept across the run's processes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.record import Place
from airflow_occ_provider.attempts.waits import AdmissionWait
from airflow_occ_provider.errors import AdmissionTimeoutError
from airflow_occ_provider.leases.lease import LeaseService, Status, Ticket
from airflow_occ_provider.leases.rules import Owner, Request, Scope

_EARLIER_KEPT = 8
_LONGER_CLAIM = 4


class Terms(Protocol):
    """The TTLs of a lease, in milliseconds."""

    @property
    def ttl_ms(self) -> int:
        """While a process renews the lease."""

    @property
    def claim_ttl_ms(self) -> int:
        """While the lease passes from one process to the next."""


class AdmissionRequest:
    """Asks for a lease, and adopts the request of an earlier process of the task run.

    :param run: the task run.
    :param service: the queue.
    :param owner: of the request.
    :param terms: the lease's TTLs.
    :param timeout: how long the request may be queued.
    :param log: the task's log.
    """

    def __init__(
        self,
        run: Journal,
        service: LeaseService,
        owner: Owner,
        *,
        terms: Terms,
        timeout: timedelta,
        log: Any,
    ) -> None:
        self._run = run
        self._service = service
        self._owner = owner
        self._timeout = timeout
        self._log = log
        self.terms = terms
        self._claim_ttl_ms = terms.claim_ttl_ms

    def ask(self, scopes: Iterable[Scope]) -> tuple[Ticket, Status]:
        """Queue the request, or adopt the one that an earlier process queued.

        :raises LeaseRefusedError: if the task's run holds a lease that does not cover it.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        wanted = tuple(scopes)
        asked = "; ".join(map(str, wanted))
        place = self._place(hashlib.sha256(repr(wanted).encode()).hexdigest())
        was_queued = place == self._run.record.place
        # Recorded before it is queued: if this process dies in between, the next one finds it.
        self._run.stand(place)
        ticket = self._service.request(
            Request(
                place.request_id,
                self._owner,
                wanted,
                self.terms.ttl_ms,
                incarnation=self._run.now.number,
                supersedes=place.earlier,
            )
        )
        if was_queued and ticket.epoch == 1:
            self._claim_longer()
        status = self._service.status(ticket)
        state = "Holds" if status.held else "Queued for"
        self._log.info("%s %s; order token %s.", state, asked, ticket.order_token)
        if not status.held:
            self._log.info("%s", status)
            self._log.info("%s", self._service.expiry_rule)
        return ticket, status

    def _claim_longer(self) -> None:
        """Raise the claim's TTL to the time waited so far.

        The request expired between two processes. The TTL stays within a multiple of the configured
        one: the claim of a task that is gone blocks the table.
        """
        longest_ms = _LONGER_CLAIM * self.terms.claim_ttl_ms
        self._claim_ttl_ms = min(longest_ms, max(self._claim_ttl_ms, round(1000 * self.waited_s)))
        self._log.warning(
            "The queued request expired before this process started, and is queued again. The next "
            "grant waits %g s for a worker slot; if slots are often that late, raise claim_ttl_s.",
            self._claim_ttl_ms / 1000,
        )

    @property
    def waited_s(self) -> float:
        """The seconds since this try was first queued, in any of its processes."""
        place = self._run.record.place
        return (now_ms() - place.since_ms) / 1000 if place else 0.0

    def keep(self, ticket: Ticket, status: Status) -> AdmissionWait:
        """Return the wait for the lease, and renew the request until a trigger runs.

        :raises AdmissionTimeoutError: if the wait has timed out; the request is withdrawn.
        """
        place = self._run.record.place
        since_ms = place.since_ms if place else now_ms()
        deadline_ms = since_ms + round(self._timeout.total_seconds() * 1000)
        if now_ms() >= deadline_ms:
            self._service.release(ticket)
            self._run.stand(None)
            raise AdmissionTimeoutError(
                f"not admitted within {self._timeout}: {status}",
                remedy="look with `airflow hudi leases list` which task holds the table and whether it "
                "is alive, or raise admission_timeout; nothing was run",
            )
        self._service.renew(ticket, self._claim_ttl_ms)
        return AdmissionWait(ticket, self.terms.ttl_ms, self._claim_ttl_ms, deadline_ms)

    def _place(self, asked: str) -> Place:
        known, this_try = self._run.record.place, self._run.now.number
        if known is None or known.asked != asked:
            earlier = (*known.earlier, known.request_id)[-_EARLIER_KEPT:] if known else ()
            return Place(uuid.uuid4().hex, asked, now_ms(), this_try, earlier)
        if known.try_number == this_try:
            return known
        return replace(known, since_ms=now_ms(), try_number=this_try)
