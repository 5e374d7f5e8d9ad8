"""``ProtectedRun``: one try of a task that starts only protected drivers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.choices import AdmissionMode
from airflow_occ_provider.attempts.claim import Claim, known_options
from airflow_occ_provider.attempts.clean_run import run_clean
from airflow_occ_provider.attempts.earlier_tries import refuse_deaths
from airflow_occ_provider.attempts.identity import run_part
from airflow_occ_provider.attempts.jobs import Job, spark_job
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.learned_scope import learn, with_hint
from airflow_occ_provider.attempts.outcome import Reading
from airflow_occ_provider.attempts.preflight import Preflight
from airflow_occ_provider.attempts.preparation import (
    Preparation,
    Protection,
    prepare,
    refuse_pending_restore,
)
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.rivals import still_pending
from airflow_occ_provider.attempts.site import Site, read_site
from airflow_occ_provider.attempts.submission import SparkJob
from airflow_occ_provider.attempts.try_lease import TryLease
from airflow_occ_provider.attempts.waits import InstantsWait, wait_for_instants
from airflow_occ_provider.attempts.work import work_digest
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hooks.deployment import task_owner
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.hooks.spark import environment
from airflow_occ_provider.hooks.table_link import show_table
from airflow_occ_provider.hooks.task_run import (
    bundle_folders,
    hide,
    longest_absence_ms,
    open_journal,
    sign,
)
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.secrets import all_secrets, spark_secrets
from airflow_occ_provider.operators.spark_run import SparkRun
from airflow_occ_provider.storage.address import canonical_table, is_one_table
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.processes import LONGEST_END_S

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator


class ProtectedRun:
    """One try of a protected task: its journal, table, lease and drivers' options.

    :param is_resumed: whether an earlier process of the same try has deferred the task.
    """

    def __init__(
        self, task: HudiSparkOperator, context: Context, spark: SparkRun, *, is_resumed: bool = False
    ) -> None:
        self._task = task
        self.context = context
        self.spark = spark
        self._is_resumed = is_resumed
        self.log = task.log
        self.work = metrics.Work(task.dag_id, task.task_id, task.table)
        self.measured = partial(metrics.attempt, self.work)

    def look_up(self) -> None:
        """Ask Airflow; meanwhile threads find Spark, and import the lock's client."""
        _ = self._site, self.lock, self.journal
        show_table(self.context)

    @cached_property
    def journal(self) -> Journal:
        """The journal of the task run."""
        return open_journal(self.context, is_resumed=self._is_resumed)

    def recover(self) -> None:
        """Revoke the drivers of a lost record, and record them as to be settled."""
        if self.journal.record.was_lost:
            run = run_part(self.journal.record.identity)
            drivers = self.spark.revoke_unrecorded(run, self.lease_ttl_s)
            self.journal.recover(self._task.table, drivers)

    @property
    def lease_ttl_s(self) -> float:
        """For how long each extension of a lease of the task lasts."""
        return self.lock.terms().claim_ttl_ms / 1000

    @cached_property
    def table(self) -> HudiTable:
        """The task's table."""
        return open_table(self._task.table, self._task.storage_conn_id)

    def open(self, table: str) -> HudiTable:
        """Open a table of an earlier try, usually the same."""
        task = self._task
        return self.table if is_one_table(table, task.table) else open_table(table, task.storage_conn_id)

    @cached_property
    def lock(self) -> HudiLockHook:
        """The hook of the lock connection; one try requests it from Airflow once."""
        return lock_hook(self._task.lock_conn_id)

    @property
    def claim(self) -> Claim:
        """The claim of the task before it writes, with what its run knows of it."""
        return with_hint(self._declared, self.journal.record)

    @cached_property
    def _declared(self) -> Claim:
        return self._task.claim(self.table)

    @cached_property
    def user_job(self) -> Job:
        """The task's own job."""
        return self._task.job(self.context)

    @cached_property
    def work_digest(self) -> str:
        """The digest of the task run's work."""
        table, partitions = canonical_table(self._task.table), self.claim.partitions
        scope = None if partitions is None else frozenset(partitions)
        return work_digest((*self.user_job.work(), table, scope), bundle_folders(self.context))

    @cached_property
    def job(self) -> SparkJob:
        """The PySpark job by which it runs."""
        job = spark_job(self.user_job, self.table, self._task.conf or {}, self.spark.deploy_mode)
        return replace(job, may_read=job.may_read or self._declared.is_serializable)

    @cached_property
    def _site(self) -> Callable[[], Site]:
        """Returns the site's configuration, which a thread reads if it is this machine's."""
        task, elsewhere = self._task, self.spark.drivers.site
        if elsewhere:
            return lambda: elsewhere
        with_arguments = partial(
            read_site,
            self.spark.hook.spark_binary or "spark-submit",
            {**os.environ, **environment(task)},
            properties_file=task.properties_file,
            class_path=(task.driver_class_path or "").split(os.pathsep),
        )
        return ThreadPoolExecutor(1, "read-site").submit(with_arguments).result

    def prepare(self, order_token: str = "", *, starts: bool = False) -> Preparation:
        """Decide a driver's options, and have the UI show them.

        :param starts: whether a driver is about to start, which a pending restore forbids.
        """
        task = self._task
        snapshot = self.table.snapshot(missing_ok=True)
        if starts:
            refuse_pending_restore(snapshot)
        self.claim.refuse_impossible(snapshot.config)
        given = {str(key): value for key, value in (task.hudi_options or {}).items()}
        task.refuse_options(given)
        protection = Protection(
            self.lock, task.early_conflict_detection, task.conflict_resolution, given
        )
        identity, signs = self.journal.record.identity, self.user_job.signs
        signature = sign(self.context, identity, snapshot, order_token, is_written=signs)
        preparation = prepare(protection, self.job, self._site(), signature, snapshot)
        spark = {**dict(preparation.site.spark.options), **(task.conf or {})}
        hide([*all_secrets(preparation.options), *spark_secrets(spark)])
        task.hudi_defaults = dict(preparation.shown)
        return preparation

    def known_options(self) -> dict[str, str]:
        """Return the known options of the job; refuse what cannot run before it is queued."""
        preparation = self.prepare(starts=True)
        self.spark.refuse(self.job, preparation.site)
        self.lock.validate()
        spark = {**dict(preparation.site.spark.options), **(self._task.conf or {})}
        return known_options(preparation.options, spark, self.table.config())

    @cached_property
    def lease(self) -> TryLease:
        """The lease under which the drivers run."""
        return TryLease(
            run=self.journal,
            lock=self.lock,
            owner=partial(task_owner, self.context),
            spark=self.spark,
            longest_end_s=LONGEST_END_S,
            timeout=self._task.admission_timeout,
            on_granted=partial(metrics.queue_wait, self.work),
            on_released=partial(metrics.lease_age, self.work),
            log=self.log,
            absence_ms=longest_absence_ms(self._task, self.journal.now.number),
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
        is_queued = self._task.admission is not AdmissionMode.OFF
        if is_queued and begun is None:
            signed = partial(sign, self.context, "", order_token="")
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
        rule, rivals = HeartbeatRule.of(options), self.journal.record.rivals
        left = still_pending(self.table, rivals, rule) if rivals else ()
        if left:
            self.wait(InstantsWait(left, rule), f"{', '.join(left)}, to which the last attempt lost")
        if rivals:
            self.journal.forget_rivals()
        self.preflight(rule).go_on()

    def preflight(self, rule: HeartbeatRule) -> Preflight:
        """Return the preflight of the try."""
        timeout = self._task.preflight_timeout
        return Preflight(self.journal, self.table, self._task.table, rule, timeout, self.log)

    def wait(self, wait: InstantsWait, reason: str) -> None:
        """Wait for instants of other writers.

        :raises AdmissionTimeoutError: if that took longer than the task's ``admission_timeout``.
        :raises WaitNeeded: else.
        """
        wait_for_instants(self.journal, wait, reason, timeout=self._task.admission_timeout, log=self.log)

    def warn_of_few_retries(self) -> None:
        """Warn if Airflow's retries of the task instance end before those of its policy."""
        task = self._task
        task.retry_policy.warn_of_few(self.journal.now.max_tries, task.own_retries, self.log)

    def refuse_deaths(self) -> None:
        """Refuse another driver if too many tries died together with their worker.

        :raises WorkerLostError: then.
        """
        refuse_deaths(self.journal, self._task.retry_policy.rules.budgets["worker"])

    def run_clean(self, preparation: Preparation, table: str, admitted: Admitted) -> tuple[int, Reading]:
        """Run Hudi's clean of a table; return the exit code and the log's reading."""
        self.journal.store_identity()
        return run_clean(self.spark, self.job, preparation, table, admitted)
