"""``AdmittedOperator``: a Spark job that stands in line for its table before it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.errors import ConfigurationError, OccError, StateStoreError
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, Terms
from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, is_process_local
from airflow_occ_provider.leases.keeper import Keeper, LossAction, least_ttl_s
from airflow_occ_provider.leases.lease import LeaseService, Ticket
from airflow_occ_provider.leases.rules import Scope
from airflow_occ_provider.operators.admission import Admission, task_owner, tell_admission
from airflow_occ_provider.operators.choices import AdmissionMode, admission_choice
from airflow_occ_provider.operators.claim import Claim, inherited, is_under_lease
from airflow_occ_provider.operators.driver import LONGEST_END_S
from airflow_occ_provider.operators.spark_attempt import SparkAttemptOperator
from airflow_occ_provider.operators.task_run import TaskRun
from airflow_occ_provider.storage.address import canonical_table, named_partitions

if TYPE_CHECKING:
    from airflow.sdk import Context


_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Admitted:
    """Under what an attempt runs.

    :param scope: what it may write; ``None`` outside the line.
    :param order_token: of its lease; empty outside the line.
    :param is_fenced: whether Hudi's own check would find a conflict, so that the lease only saves
        time.
    :param keeper: renews the lease; ``None`` outside the line.
    """

    scope: Scope | None = None
    order_token: str = ""
    is_fenced: bool = True
    keeper: Keeper | None = None

    def refuse_if_lost(self) -> None:
        """Raise where the lease is all there is, and it was lost.

        :raises LeaseLostError: then.
        """
        if self.keeper and not self.is_fenced:
            self.keeper.refuse_if_lost()

    def outside(self, partitions: Sequence[str]) -> list[str]:
        """Return the partitions that the scope does not hold."""
        if self.scope is None or self.scope.partitions is None:
            return []
        held = self.scope
        return [path for path in partitions if not held.covers(Scope.of(held.table, [path]))]


class AdmittedOperator(SparkAttemptOperator):
    """A ``SparkAttemptOperator`` whose attempts run under a lease.

    :param table: base path of the table. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param scope: the partitions that the job will touch, each with all below it, such as
        ``["dt=2026-11-21"]``; ``None`` if nobody knows. (templated)
    :param key_safe: no two writers may insert the same new key.
    :param reads_table: the job reads the table that it writes.
    :param admission: ``"queue"`` to stand in line, ``"off"`` to start at once.
    :param admission_timeout: how long to wait for the lease before the task fails.
    """

    def __init__(
        self,
        *,
        table: str,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        scope: str | Sequence[str] | None = None,
        key_safe: bool = False,
        reads_table: bool = False,
        admission: bool | AdmissionMode | str = AdmissionMode.QUEUE,
        admission_timeout: timedelta = timedelta(hours=12),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.lock_conn_id = lock_conn_id
        self.scope = scope
        self.key_safe = key_safe
        self.reads_table = reads_table
        self.admission = admission_choice(admission)
        self.admission_timeout = admission_timeout
        if self.admission is AdmissionMode.OFF and (key_safe or reads_table):
            raise ConfigurationError(
                "admission",
                "off, and key_safe or reads_table: Hudi's check does not find what they are about",
                remedy="leave admission out: only the queue keeps such writers apart",
            )

    def execute_after_admission(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Go on after the wait in line; where the place was lost, it is asked for again."""
        tell_admission(event, self.log)
        return self._execute(context)

    def _execute(self, context: Context) -> Any:
        raise NotImplementedError

    @property
    def _partitions(self) -> tuple[str, ...] | None:
        """The declared scope.

        :raises ConfigurationError: if a path of it was rendered empty, or is none below a table.
        """
        return named_partitions(self.scope)

    @cached_property
    def _lock_hook(self) -> HudiLockHook:
        """The hook of the rendered connection: one try asks Airflow for it once."""
        return lock_hook(self.lock_conn_id)

    @property
    def _work(self) -> metrics.Work:
        return metrics.Work(self.dag_id, self.task_id, self.table)

    @property
    def _claim(self) -> Claim:
        return Claim(canonical_table(self.table), self._partitions, self.key_safe, self.reads_table)

    @contextmanager
    def _admitted(
        self, context: Context, run: TaskRun, options: Mapping[str, str]
    ) -> Iterator[Admitted]:
        """Hold the lease for the time of a block, or defer until it is our turn.

        :param options: the job's effective Hudi options.
        :raises AdmissionTimeoutError: if the wait has been too long.
        :raises LeaseRefusedError: if the run's own lease does not cover the scope.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        if self.admission is AdmissionMode.OFF:
            if not self._claim.is_fenced(options):
                raise ConfigurationError(
                    "admission",
                    "off, and a lock that excludes nobody outside its own process: nothing is left",
                    remedy="leave admission out, or name a lock provider that reaches all writers",
                )
            yield Admitted()
            return
        with self._queued(context, run, options, self._claim) as admitted:
            yield admitted

    @contextmanager
    def _alone_where_nothing_locks(
        self, context: Context, run: TaskRun, options: Mapping[str, str], table: str
    ) -> Iterator[Admitted]:
        """Hold a whole table for a clean if Hudi's lock excludes no other process; else run beside all.

        :param options: the clean's Hudi options.
        :param table: base path of the table.
        :raises OccError: as ``_admitted`` does.
        """
        if not is_process_local(options.get(LOCK_PROVIDER, "")):
            yield Admitted()
            return
        claim = Claim(canonical_table(table), None, key_safe=False, reads_table=False)
        with self._queued(context, run, options, claim) as admitted:
            yield admitted

    @contextmanager
    def _queued(
        self, context: Context, run: TaskRun, options: Mapping[str, str], claim: Claim
    ) -> Iterator[Admitted]:
        """Hold the lease that a claim asks for, or defer until it is granted."""
        is_fenced = claim.is_fenced(options)
        service = self._lock_hook.leases()
        try:
            owner = task_owner(context)
            admission = Admission(
                run,
                service,
                owner,
                lock=self._lock_hook,
                timeout=self.admission_timeout,
                log=self.log,
            )
            if not is_fenced:
                self._refuse_short(admission.terms)
            asked = claim.scope(options, run.record.escalation)
            run_line = [
                one for one in service.requests_of_run(owner) if asked.table in one.request.tables
            ]
            if is_fenced:
                asked = inherited(asked, claim.declared(options), owner, run_line)
            beside = () if is_under_lease(owner, run_line) else claim.beside(asked)
            ticket, status = admission.ask([asked, *beside])
            if not status.held:
                self.defer(
                    trigger=admission.wait(ticket, status),
                    method_name=self.execute_after_admission.__name__,
                )
            metrics.queue_wait(self._work, admission.waited_s)
            held_s = time.monotonic()
            keeper = Keeper(service, ticket, admission.terms.ttl_ms, self._on_lost(is_fenced))
            try:
                with keeper:
                    try:
                        yield Admitted(asked, ticket.order_token, is_fenced, keeper)
                    finally:
                        if not is_fenced:
                            self._see_driver_end()
            finally:
                # Where only the lease keeps others away, it outlives a driver that does not end.
                if is_fenced or self._driver is None or not self._driver.lives:
                    self._leave_line(run, service, ticket, held_s)
        finally:
            service.close()

    def _refuse_short(self, terms: Terms) -> None:
        """Refuse a time to live within which a driver could not be ended.

        :raises ConfigurationError: then; nothing has been asked for.
        """
        least_s = least_ttl_s(LONGEST_END_S)
        if terms.ttl_ms < least_s * 1000:
            raise ConfigurationError(
                f"connection {self.lock_conn_id!r}, time to live of leases",
                f"{terms.ttl_ms / 1000:g} s is too short for a writer that only its lease protects: "
                f"ending its driver takes up to {LONGEST_END_S:g} s",
                remedy=f"raise it to {least_s} s: lease_ttl_s, or a metastore's hive.txn.timeout",
            )

    def _see_driver_end(self) -> None:
        """Keep the lease until nothing of the driver is alive: nothing else keeps others away."""
        if self._driver and self._driver.lives:
            self.log.warning("The driver does not end; its lease is renewed until it has ended.")
        while self._driver and self._driver.lives:
            self._end_driver()
            time.sleep(_PAUSE_S)

    def _leave_line(self, run: TaskRun, service: LeaseService, ticket: Ticket, held_s: float) -> None:
        try:
            if service.release(ticket):
                metrics.lease_age(self._work, time.monotonic() - held_s)
                with suppress(StateStoreError):  # an old place is only asked for in vain
                    run.stand(None)
        except OccError as error:
            self.log.warning("The lease was not released, its time to live frees it: %s", error.message)

    def _on_lost(self, is_fenced: bool) -> LossAction:
        """Return what follows where others may hold the lease: only a writer without a fence ends."""
        if is_fenced:
            return LossAction("the job runs on, and Hudi's commit check decides")
        return LossAction("the driver is ended", self._end_driver)

    def _end_driver(self) -> None:
        if self._driver:
            with suppress(ProcessLookupError):
                self._driver.end()
