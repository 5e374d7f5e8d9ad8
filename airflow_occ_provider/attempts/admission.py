"""A task run's request in its tables' queue, kept across the run's processes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Any

from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.record_parts import QueueEntry
from airflow_occ_provider.attempts.waits import AdmissionWait
from airflow_occ_provider.errors import AdmissionTimeoutError
from airflow_occ_provider.leases.lease import Status, Terms, Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope

_EARLIER_KEPT = 8
_LONGER_CLAIM = 4


@dataclass(slots=True)
class AdmissionRequest:
    """Asks for a lease, and adopts the request of an earlier process of the task run."""

    run: Journal
    service: Queue
    owner: Owner
    _: KW_ONLY
    terms: Terms
    timeout: timedelta
    log: Any
    _claim_ttl_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._claim_ttl_ms = self.terms.claim_ttl_ms

    def ask(self, scopes: Iterable[Scope], *, is_held: bool = False) -> tuple[Ticket, Status]:
        """Queue the request, or adopt the one that an earlier process queued.

        :param is_held: whether to adopt it even if it was for other scopes.
        :raises LeaseRefusedError: if the task's run holds a lease that does not cover it.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        wanted = tuple(scopes)
        recorded = self.run.record.queue_entry
        digest = hashlib.sha256(repr(wanted).encode()).hexdigest()
        entry = self._entry(recorded.asked if recorded and is_held else digest)
        was_queued = entry == self.run.record.queue_entry
        # Recorded before it is queued: if this process dies in between, the next one finds it.
        self.run.set_request(entry)
        ticket = self.service.request(
            Request(
                entry.request_id,
                self.owner,
                wanted,
                self.terms.ttl_ms,
                incarnation=self.run.now.number,
                supersedes=entry.earlier,
            )
        )
        if was_queued and ticket.epoch == 1:
            self._claim_longer()
        status = self.service.status(ticket)
        state = "Holds" if status.held else "Queued for"
        scope_text = "; ".join(map(str, wanted))
        self.log.info("%s %s; order token %s.", state, scope_text, ticket.order_token)
        if not status.held:
            self.log.info("%s", status)
            self.log.info("A request that is not renewed within its TTL is removed by the next waiter.")
        return ticket, status

    def _claim_longer(self) -> None:
        """Raise the claim's TTL to the time waited so far.

        The request expired between two processes. The TTL stays within a multiple of the configured
        one: the claim of a task that is gone blocks the table.
        """
        longest_ms = _LONGER_CLAIM * self.terms.claim_ttl_ms
        self._claim_ttl_ms = min(longest_ms, max(self._claim_ttl_ms, round(1000 * self.waited_s)))
        self.log.warning(
            "The queued request expired before this process started, and is queued again. The next "
            "grant waits %g s for a worker slot; if slots are often that late, raise claim_ttl_s.",
            self._claim_ttl_ms / 1000,
        )

    @property
    def waited_s(self) -> float:
        """The seconds since this try was first queued, in any of its processes."""
        entry = self.run.record.queue_entry
        return (now_ms() - entry.since_ms) / 1000 if entry else 0.0

    def keep(self, ticket: Ticket, status: Status) -> AdmissionWait:
        """Return the wait for the lease, and renew the request until a trigger runs.

        :raises AdmissionTimeoutError: if the wait has timed out; the request is withdrawn.
        """
        entry = self.run.record.queue_entry
        since_ms = entry.since_ms if entry else now_ms()
        deadline_ms = since_ms + round(self.timeout.total_seconds() * 1000)
        if now_ms() >= deadline_ms:
            self.service.release(ticket)
            self.run.set_request(None)
            raise AdmissionTimeoutError(
                f"not admitted within {self.timeout}: {status}",
                remedy="look with `airflow hudi leases list` which task holds the table and whether it "
                "is alive, or raise wait_timeout; nothing was run",
            )
        self.service.renew(ticket, self._claim_ttl_ms)
        return AdmissionWait(ticket, self.terms.ttl_ms, self._claim_ttl_ms, deadline_ms)

    def pass_on(self, ticket: Ticket, claim_ttl_ms: int) -> AdmissionWait:
        """Renew a held lease until a trigger runs; return what that needs to keep it."""
        self.service.renew(ticket, claim_ttl_ms)
        return AdmissionWait(ticket, self.terms.ttl_ms, claim_ttl_ms, 0)

    def _entry(self, digest: str) -> QueueEntry:
        recorded = self.run.record.queue_entry
        this_try = self.run.now.number
        if recorded is None or recorded.asked != digest:
            earlier = (*recorded.earlier, recorded.request_id)[-_EARLIER_KEPT:] if recorded else ()
            return QueueEntry(uuid.uuid4().hex, digest, now_ms(), this_try, earlier)
        if recorded.try_number == this_try:
            return recorded
        return replace(recorded, since_ms=now_ms(), try_number=this_try)
