"""Admission: a task's place in the line for its tables, kept across its processes."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRescheduleException
from airflow.sdk.timezone import utcnow

from airflow_occ_provider.errors import AdmissionTimeoutError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook
from airflow_occ_provider.jobs.record import Place
from airflow_occ_provider.leases.description import describe_status
from airflow_occ_provider.leases.lease import LeaseService, Status, Ticket
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators.deployment import site
from airflow_occ_provider.operators.task_run import TaskRun, now_ms
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

_EARLIER_KEPT = 8
_LONGER_CLAIM = 4


class Admission:
    """Asks for a lease, and knows the place again in the task's next process.

    :param run: the task run.
    :param service: the line.
    :param owner: who asks.
    :param lock: hook of the line's connection.
    :param timeout: how long to wait in line.
    :param log: the task's log.
    :raises ConfigurationError: if the connection is missing or wrong.
    """

    def __init__(
        self,
        run: TaskRun,
        service: LeaseService,
        owner: Owner,
        *,
        lock: HudiLockHook,
        timeout: timedelta,
        log: Any,
    ) -> None:
        self._run = run
        self._lock_conn_id = lock.lock_conn_id
        self._service = service
        self._owner = owner
        self._timeout = timeout
        self._log = log
        self.terms = lock.terms()
        self._claim_ttl_ms = self.terms.claim_ttl_ms

    def ask(self, scopes: Iterable[Scope]) -> tuple[Ticket, Status]:
        """Stand in line, or take the place over that an earlier process of the task has.

        :raises LeaseRefusedError: if the task's run holds a lease that does not cover it.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        wanted = tuple(scopes)
        asked = "; ".join(map(str, wanted))
        place = self._place(hashlib.sha256(repr(wanted).encode()).hexdigest())
        has_stood = place == self._run.record.place
        # Written down before it is asked for: a process that dies in between finds it again.
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
        if has_stood and ticket.epoch == 1:
            self._claim_longer()
        status = self._service.status(ticket)
        does = "Holds" if status.held else "Stands in line for"
        self._log.info("%s %s; order token %s.", does, asked, ticket.order_token)
        if not status.held:
            self._log.info("%s", describe_status(status))
            self._log.info("%s", self._service.expiry_rule)
        return ticket, status

    def _claim_longer(self) -> None:
        """Claim the next grant for as long as the wait so far: the place was lost between processes.

        Not for much longer than the site allows: the claim of a task that is gone blocks the table.
        """
        longest_ms = _LONGER_CLAIM * self.terms.claim_ttl_ms
        self._claim_ttl_ms = min(longest_ms, max(self._claim_ttl_ms, round(1000 * self.waited_s)))
        self._log.warning(
            "The place in the queue was lost before this process came, and is asked for anew. The next "
            "grant waits %g s for a worker slot; if slots are often that late, raise claim_ttl_s.",
            self._claim_ttl_ms / 1000,
        )

    @property
    def waited_s(self) -> float:
        """The seconds since this try stood in line first, whichever process it was in."""
        place = self._run.record.place
        return (now_ms() - place.since_ms) / 1000 if place else 0.0

    def wait(self, ticket: Ticket, status: Status) -> HudiAdmissionTrigger:
        """Return the trigger that waits for our turn; the place is claimed until it runs.

        :raises AdmissionTimeoutError: if the wait has been too long; the place is given up.
        """
        place = self._run.record.place
        deadline_ms = (place.since_ms if place else now_ms()) + round(
            self._timeout.total_seconds() * 1000
        )
        if now_ms() >= deadline_ms:
            self._service.release(ticket)
            self._run.stand(None)
            raise AdmissionTimeoutError(
                f"not admitted within {self._timeout}: {describe_status(status)}",
                remedy="look with `airflow hudi leases list` who holds the table and whether he lives, "
                "or raise admission_timeout; nothing was run",
            )
        self._service.renew(ticket, self._claim_ttl_ms)
        return HudiAdmissionTrigger(
            lock_conn_id=self._lock_conn_id,
            ticket=ticket.to_json(),
            ttl_ms=self.terms.ttl_ms,
            claim_ttl_ms=self._claim_ttl_ms,
            deadline_ms=deadline_ms,
        )

    def _place(self, asked: str) -> Place:
        known, this_try = self._run.record.place, self._run.now.number
        if known is None or known.asked != asked:
            earlier = (*known.earlier, known.request_id)[-_EARLIER_KEPT:] if known else ()
            return Place(uuid.uuid4().hex, asked, now_ms(), this_try, earlier)
        if known.try_number == this_try:
            return known
        return replace(known, since_ms=now_ms(), try_number=this_try)


def tell_admission(event: Mapping[str, Any], log: Any) -> None:
    """Tell what a trigger that waited in line has said.

    :param event: of a ``HudiAdmissionTrigger``.
    :param log: the task's log.
    :raises AirflowRescheduleException: if the triggerer has no slot for another waiter.
    """
    if event["status"] == "full":
        log.info("The triggerer is full of waiters: the task looks again in %g s.", event["again_s"])
        raise AirflowRescheduleException(utcnow() + timedelta(seconds=event["again_s"]))
    said = {
        "granted": "Its turn has come.",
        "lost": f"The place in line was lost ({event.get('message')}): it is asked for again, behind "
        "all who stand there now.",
        "timeout": "The wait in line is over.",
    }
    log.info("%s", said.get(event["status"]) or event.get("message"))


def task_owner(context: Context) -> Owner:
    """Return a task as an owner of leases."""
    ti = context["ti"]
    path = (ti.dag_id, ti.run_id, ti.task_id)
    return Owner((*path, str(ti.map_index)) if _is_mapped(ti) else path, site=site())


def run_owner(context: Context) -> Owner:
    """Return a run, for which a task asks, as an owner of leases."""
    ti = context["ti"]
    task = f"{ti.task_id}[{ti.map_index}]" if _is_mapped(ti) else ti.task_id
    return Owner((ti.dag_id, ti.run_id), task, site())


def _is_mapped(ti: Any) -> bool:
    return ti.map_index is not None and ti.map_index >= 0
