"""``ProtectedTry``: one try of a task that starts only protected drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.claim import Claim, known_options
from airflow_occ_provider.attempts.clean_run import run_clean
from airflow_occ_provider.attempts.driver import DriverRun
from airflow_occ_provider.attempts.earlier_tries import refuse_deaths
from airflow_occ_provider.attempts.identity import run_part
from airflow_occ_provider.attempts.jobs import spark_job
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.learned_scope import learn, with_hint
from airflow_occ_provider.attempts.lock_connection import LockConnection
from airflow_occ_provider.attempts.outcome import LogReading
from airflow_occ_provider.attempts.preflight import Preflight
from airflow_occ_provider.attempts.preparation import (
    Preparation,
    Protection,
    prepare,
    refuse_pending_restore,
)
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.rivals import still_pending
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.task_run import TaskRun
from airflow_occ_provider.attempts.try_lease import TryLease
from airflow_occ_provider.attempts.waits import InstantsWait, wait_for_instants
from airflow_occ_provider.attempts.work import work_digest
from airflow_occ_provider.attempts.write_spec import WriteSpec
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.secrets import all_secrets, spark_secrets
from airflow_occ_provider.storage.address import canonical_table, is_one_table
from airflow_occ_provider.storage.table import PROPERTIES_AGE_S, HudiTable

_ISOLATION = "_airflow_isolation"
"""By this name people see the isolation, which a job may imply."""


class ProtectedTry:
    """One try of a protected task: its journal, table, lease and drivers' options.

    :param spec: the task's work.
    :param task_run: the scheduler's view of the try.
    :param spark: runs its drivers.
    :param log: of the task.
    """

    def __init__(self, spec: WriteSpec, task_run: TaskRun, spark: DriverRun, log: Any) -> None:
        self.spec = spec
        self.task_run = task_run
        self.spark = spark
        self.log = log

    def look_up(self) -> None:
        """Ask the scheduler; meanwhile threads find Spark, and import the lock's client."""
        _ = self._site, self.lock, self.journal

    @cached_property
    def journal(self) -> Journal:
        """The journal of the task run."""
        return self.task_run.journal()

    def recover(self) -> None:
        """Revoke the drivers of a lost record, and record them as to be settled."""
        if self.journal.record.was_lost:
            run = run_part(self.journal.record.identity)
            drivers = self.spark.revoke_unrecorded(run, self.lease_ttl_s)
            self.journal.recover(self.spec.table, drivers)

    @property
    def lease_ttl_s(self) -> float:
        """For how long each extension of a lease of the task lasts."""
        return self.lock.terms().claim_ttl_ms / 1000

    @cached_property
    def table(self) -> HudiTable:
        """The task's table."""
        return self.task_run.open_table(self.spec.table)

    def open(self, table: str) -> HudiTable:
        """Open a table of an earlier try, usually the same."""
        return self.table if is_one_table(table, self.spec.table) else self.task_run.open_table(table)

    @cached_property
    def lock(self) -> LockConnection:
        """The lock connection; one try requests it from the scheduler once."""
        return self.task_run.lock()

    @property
    def claim(self) -> Claim:
        """The claim of the task before it writes, with what its run knows of it."""
        return with_hint(self._declared, self.journal.record)

    @cached_property
    def _declared(self) -> Claim:
        return self.spec.claim(self.table, self.log)

    @cached_property
    def work_digest(self) -> str:
        """The digest of the task run's work."""
        table = canonical_table(self.spec.table)
        partitions = self.claim.partitions
        scope = None if partitions is None else frozenset(partitions)
        return work_digest((*self.spec.job.work(), table, scope), self.task_run.folders())

    @cached_property
    def job(self) -> SparkJob:
        """The PySpark job by which the task's job runs."""
        job = spark_job(self.spec.job, self.table, self.spec.conf, self.spark.deploy_mode)
        return replace(job, may_read=job.may_read or self._declared.is_serializable)

    @cached_property
    def _site(self) -> Callable[[], Site]:
        """Returns the configuration of the drivers' site."""
        return self.spark.read_site()

    def prepare(self, order_token: str = "") -> Preparation:
        """Decide a driver's options, and have the scheduler show them.

        :param order_token: of the lease; the holder before may have made the table anew.
        """
        spec = self.spec
        max_age_s = 0 if order_token else PROPERTIES_AGE_S
        snapshot = self.table.snapshot(missing_ok=True, max_age_s=max_age_s)
        self.claim.refuse_impossible(snapshot.config)
        protection = Protection(self.lock, spec.policy, spec.hudi_options)
        identity = self.journal.record.identity
        signs = spec.job.signs
        signature = self.task_run.sign(identity, snapshot, order_token, is_written=signs)
        preparation = prepare(protection, self.job, self._site(), signature, snapshot)
        spark = {**dict(preparation.site.spark.options), **spec.conf}
        self.task_run.hide([*all_secrets(preparation.options), *spark_secrets(spark)])
        self.task_run.show({**preparation.shown, _ISOLATION: str(self.claim.isolation)})
        return preparation

    def known_options(self, preparation: Preparation) -> dict[str, str]:
        """Return the known options of the job; refuse what cannot run before it is queued."""
        refuse_pending_restore(preparation.snapshot)
        self.spark.refuse(self.job, preparation.site)
        self.lock.validate()
        spark = {**dict(preparation.site.spark.options), **self.spec.conf}
        return known_options(preparation.options, spark, preparation.snapshot.config)

    @cached_property
    def lease(self) -> TryLease:
        """The lease under which the drivers run."""
        measures = self.task_run.measures
        return TryLease(
            run=self.journal,
            lock=self.lock,
            owner=self.task_run.owner,
            spark=self.spark,
            timeout=self.spec.wait_timeout,
            on_granted=measures.queue_wait,
            on_released=measures.lease_age,
            log=self.log,
            absence_ms=self.task_run.absence_ms(self.journal.now.number),
        )

    def admitted(
        self,
        options: Mapping[str, str],
        begun: AttemptRecord | None = None,
        *,
        was_leased: bool = False,
    ) -> AbstractContextManager[Admitted]:
        """Hold the lease that the task requests, for the time of a block.

        :param begun: the attempt that runs under the lease already, if there is one.
        :param was_leased: whether its driver has ended while the lease was held.
        """
        is_queued = self.spec.is_queued
        if is_queued and begun is None:
            signed = partial(self.task_run.sign, "", order_token="")
            learn(self.claim, options, self.journal, self.table, sign=signed, log=self.log)
        return self.lease.admitted(
            self.claim, options, is_queued=is_queued, begun=begun, was_leased=was_leased
        )

    def alone_if_unlocked(
        self, options: Mapping[str, str], table: str
    ) -> AbstractContextManager[Admitted]:
        """Hold the whole table if Hudi's lock excludes no other process."""
        return self.lease.alone_if_unlocked(canonical_table(table), options)

    def wait_for_rivals(self, options: Mapping[str, str]) -> None:
        """Wait for rivals outside the queue, of a lost attempt or of a preflight.

        :raises WaitNeeded: while they are pending.
        """
        rule = HeartbeatRule.of(options)
        rivals = self.journal.record.rivals
        pending = still_pending(self.table, rivals, rule) if rivals else ()
        if pending:
            names = ", ".join(pending)
            self.wait(InstantsWait(pending, rule), f"{names}, to which the last attempt lost")
        if rivals:
            self.journal.forget_rivals()
        self.preflight(rule).go_on()

    def preflight(self, rule: HeartbeatRule) -> Preflight:
        """Return the preflight of the try."""
        spec = self.spec
        return Preflight(
            self.journal, self.table, spec.table, rule, spec.policy.preflight_timeout, self.log
        )

    def wait(self, wait: InstantsWait, reason: str) -> None:
        """Wait for instants of other writers.

        :raises AdmissionTimeoutError: if that took longer than the task's ``wait_timeout``.
        :raises WaitNeeded: else.
        """
        timeout = self.spec.wait_timeout
        wait_for_instants(self.journal, wait, reason, timeout=timeout, log=self.log)

    def refuse_deaths(self) -> None:
        """Refuse another driver if too many tries died together with their worker.

        :raises WorkerLostError: then.
        """
        refuse_deaths(self.journal, self.spec.deaths)

    def run_clean(
        self, preparation: Preparation, table: str, admitted: Admitted
    ) -> tuple[int, LogReading]:
        """Run Hudi's clean of a table; return the exit code and the log's reading."""
        self.journal.store_identity()
        return run_clean(self.spark, self.job, preparation, table, admitted)
