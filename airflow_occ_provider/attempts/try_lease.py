"""The lease under which the drivers of one try run, and its request in the queue."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import timedelta
from typing import Any

from airflow_occ_provider.attempts.driver import Admitted, DriverRun
from airflow_occ_provider.attempts.journal import Journal, now_ms
from airflow_occ_provider.attempts.locks import LockConnection
from airflow_occ_provider.attempts.record import AttemptRecord, QueueEntry
from airflow_occ_provider.attempts.scope import Claim, inherited, leases_above
from airflow_occ_provider.attempts.standby import Standby
from airflow_occ_provider.attempts.submitter import LEASE_TTL_FACT
from airflow_occ_provider.attempts.waits import (
    UNWATCHED,
    AdmissionWait,
    DriverEvent,
    DriverWait,
    WaitNeeded,
)
from airflow_occ_provider.errors import (
    AdmissionTimeoutError,
    ConfigurationError,
    LeaseLostError,
    LockUnreachableError,
    OccError,
    StateStoreError,
)
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, is_process_local
from airflow_occ_provider.leases.keeper import Keeper, least_ttl_s
from airflow_occ_provider.leases.lease import Status, Terms, Ticket
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, QueuedRequest, Request, Scope

_EARLIER_KEPT = 8
_LONGER_CLAIM = 4
_PAUSE_S = 1.0
_LONGEST_WAIT_S = 600.0


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

    def keep(self, ticket: Ticket, status: Status, *, until_next: bool = False) -> AdmissionWait:
        """Return the wait for the lease, and renew the request until a trigger runs.

        :param until_next: whether the wait ends once the request is the next one.
        :raises AdmissionTimeoutError: if the wait has timed out; the request is withdrawn.
        """
        deadline_ms = self._deadline_ms(ticket, status)
        self.service.renew(ticket, self._claim_ttl_ms)
        return AdmissionWait(ticket, self.terms.ttl_ms, self._claim_ttl_ms, deadline_ms, until_next)

    def held(self, ticket: Ticket, status: Status, standby: Standby) -> Status:
        """Wait in this process, with a driver on standby; return the held status.

        The request is withdrawn after any error.

        :raises AdmissionTimeoutError: if the wait has timed out.
        :raises LeaseLostError: if the request is lost.
        :raises NotSubmittedError: if the driver cannot be started, or has ended.
        """
        changed, period_s = threading.Event(), self.terms.ttl_ms / 1000 / RENEWALS_PER_TTL
        try:
            while not status.held:
                changed.clear()
                try:
                    self.service.renew(ticket, self.terms.ttl_ms)
                    status = self.service.status(ticket, changed.set)
                except LockUnreachableError as error:  # asked again, until the request is lost
                    self.log.warning("Retrying: %s", error.message)
                if not status.held:
                    left_s = (self._deadline_ms(ticket, status) - now_ms()) / 1000
                    standby.look_until(changed, min(period_s, left_s))
        except BaseException:
            with suppress(OccError):
                self.service.release(ticket)
            raise
        return status

    def _deadline_ms(self, ticket: Ticket, status: Status) -> int:
        """Return when the wait times out, in epoch milliseconds.

        :raises AdmissionTimeoutError: if it has done so; the request is withdrawn.
        """
        entry = self.run.record.queue_entry
        since_ms = entry.since_ms if entry else now_ms()
        deadline_ms = since_ms + round(self.timeout.total_seconds() * 1000)
        if now_ms() < deadline_ms:
            return deadline_ms
        self.service.release(ticket)
        self.run.set_request(None)
        raise AdmissionTimeoutError(
            f"not admitted within {self.timeout}: {status}",
            remedy="look with `airflow hudi leases list` which task holds the table and whether it "
            "is alive, or raise wait_timeout; nothing was run",
        )

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


@dataclass(frozen=True, slots=True)
class TryLease:
    """Holds a lease for one try of a task, or makes the try wait for it.

    :param absence_ms: the most milliseconds between the death of a process of the task and the start
        of the next one, without the wait for a worker slot.
    :param on_granted: called with the seconds that the try waited for the lease.
    :param on_released: called with the seconds for which the lease was held.
    """

    run: Journal
    lock: LockConnection
    owner: Callable[[], Owner]
    spark: DriverRun
    timeout: timedelta
    on_granted: Callable[[float], None]
    on_released: Callable[[float], None]
    log: Any
    absence_ms: int = 0

    @contextmanager
    def admitted(
        self,
        claim: Claim,
        options: Mapping[str, str],
        *,
        is_queued: bool,
        begun: AttemptRecord | None = None,
        event: DriverEvent = UNWATCHED,
        standby: Standby | None = None,
    ) -> Iterator[Admitted]:
        """Hold the lease that a claim requests, for the time of a block.

        A block that waits for its driver passes the lease on with the wait.

        :param is_queued: whether to hold a lease; else Hudi's lock alone has to be enough.
        :param begun: an attempt that runs, or has run, under the lease: if the lease is gone, the block
            runs without it.
        :param event: of the process that has watched that attempt's driver. If it has ended while the
            lease was held, what became of the lease since does not matter.
        :param standby: the driver that is started once the request is the next one.
        :raises AdmissionTimeoutError: if the wait has timed out.
        :raises ConfigurationError: if neither a lease nor Hudi's lock keeps other writers away, or the
            lease's time to live is too short.
        :raises LeaseRefusedError: if the run's own lease does not cover the scope.
        :raises LockUnreachableError: if the lock service does not answer in time.
        :raises WaitNeeded: if the lease is not granted yet.
        """
        if is_queued and begun and event.is_released:
            yield self._after_release(claim, options, begun)
            return
        if is_queued:
            with self._held(claim, options, begun, standby) as admitted:
                yield replace(admitted, keeper=None, loss=None) if event.is_leased else admitted
            return
        if not claim.is_fenced(options):
            raise ConfigurationError(
                "admission",
                "off, and a lock that excludes no other process: nothing is left",
                remedy="leave admission out, or name a lock provider that reaches all writers",
            )
        yield Admitted()

    @contextmanager
    def alone_if_unlocked(self, table: str, options: Mapping[str, str]) -> Iterator[Admitted]:
        """Hold the whole table if Hudi's lock excludes no other process.

        Otherwise the block runs beside all writers, without a lease.

        :raises OccError: as ``admitted`` does.
        """
        if not is_process_local(options.get(LOCK_PROVIDER, "")):
            yield Admitted()
            return
        claim = Claim(table, None)
        with self._held(claim, options) as admitted:
            yield admitted

    @contextmanager
    def _held(
        self,
        claim: Claim,
        options: Mapping[str, str],
        begun: AttemptRecord | None = None,
        standby: Standby | None = None,
    ) -> Iterator[Admitted]:
        is_fenced = claim.is_fenced(options)
        with closing(self.lock.leases()) as service:
            request = AdmissionRequest(
                self.run,
                service,
                self.owner(),
                terms=self.lock.terms(),
                timeout=self.timeout,
                log=self.log,
            )
            if not is_fenced:
                self._refuse_short(request.terms)
            scope, ticket, status = self._requested(claim, options, request, is_held=begun is not None)
            if begun and not (status.held and ticket.order_token == begun.order_token):
                self._release(service, ticket, time.monotonic(), is_done=True)
                yield Admitted(scope, begun.order_token, is_fenced, loss=_lost(begun))
                return
            if standby and status.is_next:
                status = request.held(ticket, status, standby)
            if not status.held:
                raise WaitNeeded(request.keep(ticket, status, until_next=standby is not None))
            if begun is None:
                self.on_granted(request.waited_s)
            with self._kept(request, ticket, begun, is_fenced=is_fenced) as (keeper, release):
                lease_ttl_s = None if is_fenced else self._least_term_ms(request.terms) / 1000
                yield Admitted(
                    scope,
                    ticket.order_token,
                    is_fenced,
                    keeper,
                    lease_ttl_s=lease_ttl_s,
                    release=release,
                )

    @contextmanager
    def _kept(
        self,
        request: AdmissionRequest,
        ticket: Ticket,
        begun: AttemptRecord | None,
        *,
        is_fenced: bool,
    ) -> Iterator[tuple[Keeper, Callable[[], None]]]:
        """Renew a held lease for the time of a block, then release it or pass it on.

        With the lease's keeper comes what releases it before the block ends.
        """
        held_s = time.monotonic()
        decides = "the job runs on, and Hudi's commit check decides"
        on_lost = decides if is_fenced else "the driver is ended"
        is_done = is_passed_on = False
        terms = request.terms
        unwatched_ms = max(self._unwatched_ms(terms, is_fenced=is_fenced), _lives_ms(begun))
        ttl_ms = unwatched_ms or terms.ttl_ms
        kept = Keeper(request.service, ticket, ttl_ms, on_lost=on_lost, usual_ttl_ms=terms.ttl_ms)
        is_released = False

        def release() -> None:
            nonlocal is_released
            kept.stop()
            is_released = self._release(request.service, ticket, held_s, is_done=True)

        try:
            with kept as keeper:
                try:
                    yield keeper, release
                except WaitNeeded as needed:
                    if not isinstance(needed.wait, DriverWait):
                        raise
                    claim_ttl_ms = unwatched_ms or terms.claim_ttl_ms
                    passed = replace(needed.wait, lease=request.pass_on(ticket, claim_ttl_ms))
                    is_passed_on = True
                    raise WaitNeeded(passed) from None
                finally:
                    if not (is_fenced or is_passed_on):
                        self._see_driver_end()
            is_done = True
        finally:
            # A lease that alone keeps others away stays held while the driver does not end.
            is_over = is_released or is_passed_on
            if not is_over and (is_fenced or not self.spark.lives):
                self._release(request.service, ticket, held_s, is_done=is_done)

    def _unwatched_ms(self, terms: Terms, *, is_fenced: bool) -> int:
        """Return for how long a lease outlives its process because a driver may do so; 0 if none may.

        A driver elsewhere that only its lease keeps others away from may run while no process of the
        task does. The next process finds it, and must find its lease, too.
        """
        return 0 if is_fenced or not self.spark.is_remote else terms.claim_ttl_ms + self.absence_ms

    def _least_term_ms(self, terms: Terms) -> int:
        """Return for how long a renewal lasts at least, by any process that follows the driver.

        A lease in a metastore has one term only.
        """
        return terms.claim_ttl_ms if self.spark.is_remote else terms.ttl_ms

    def _requested(
        self,
        claim: Claim,
        options: Mapping[str, str],
        request: AdmissionRequest,
        *,
        is_held: bool,
    ) -> tuple[Scope, Ticket, Status]:
        """Request the lease; return its scope, ticket and status.

        :param is_held: whether an earlier process was granted it, for a scope as it was then.
        """
        scope, leases = self._scope(claim, options, request.service, request.owner)
        beside = () if leases else claim.beside(scope)
        return scope, *request.ask([scope, *beside], is_held=is_held)

    def _scope(
        self, claim: Claim, options: Mapping[str, str], service: Queue, owner: Owner
    ) -> tuple[Scope, Sequence[QueuedRequest]]:
        """Return the scope to request, and those that the task's run holds above it."""
        scope = claim.scope(options, self.run.record.escalation)
        leases = leases_above(owner, scope.table, service.requests_of_run(owner))
        if claim.is_fenced(options):
            scope = inherited(scope, claim.declared(options), leases)
        return scope, leases

    def _after_release(self, claim: Claim, options: Mapping[str, str], begun: AttemptRecord) -> Admitted:
        """Return the lease of a driver that has ended, as it was until then; nothing is requested."""
        with closing(self.lock.leases()) as service:
            scope, _ = self._scope(claim, options, service, self.owner())
        with suppress(StateStoreError):
            self.run.drop_request(at_once=False)
        return Admitted(scope, begun.order_token)

    def _refuse_short(self, terms: Terms) -> None:
        """Refuse a time to live that is too short to end a driver in it."""
        least_s = least_ttl_s(self.spark.longest_end_s)
        if terms.ttl_ms < least_s * 1000:
            raise ConfigurationError(
                f"connection {self.lock.lock_conn_id!r}, time to live of leases",
                f"{terms.ttl_ms / 1000:g} s is too short for a writer that only its lease protects: "
                f"ending its driver takes up to {self.spark.longest_end_s:g} s",
                remedy=f"raise it to {least_s} s: lease_ttl_s, or a metastore's hive.txn.timeout",
            )

    def _see_driver_end(self) -> None:
        """Keep the lease until no process of the driver is alive: only it keeps others away."""
        if self.spark.lives:
            self.log.warning("The driver does not end; its lease is renewed until it has ended.")
        deadline_s = time.monotonic() + _LONGEST_WAIT_S  # the end of one elsewhere may stay unknown
        while self.spark.lives and (time.monotonic() < deadline_s or not self.spark.is_remote):
            self.spark.end()
            time.sleep(_PAUSE_S)

    def _release(self, service: Queue, ticket: Ticket, held_s: float, *, is_done: bool) -> bool:
        """Release the lease; return whether the lock service has answered.

        :param is_done: whether the try goes on; else its record may not change again.
        """
        try:
            if service.release(ticket):
                self.on_released(time.monotonic() - held_s)
                with suppress(StateStoreError):
                    self.run.drop_request(at_once=not is_done)
        except OccError as error:
            self.log.warning("The lease was not released, its time to live frees it: %s", error.message)
            return False
        return True


def _lives_ms(begun: AttemptRecord | None) -> int:
    """Return for how long an attempt's driver may live on an extension, as it was told; 0 if on none.

    The connection may have been changed since.
    """
    driver = begun.driver if begun else None
    return round(1000 * float(driver.facts.get(LEASE_TTL_FACT) or 0)) if driver else 0


def _lost(begun: AttemptRecord) -> LeaseLostError:
    return LeaseLostError(
        f"the lease {begun.order_token} of the attempt that is followed expired before this process "
        "took it over",
        remedy="check whether a triggerer and a worker slot were free in time, or raise claim_ttl_s",
    )
