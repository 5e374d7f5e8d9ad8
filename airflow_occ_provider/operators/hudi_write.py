"""``HudiWriteOperator``: a Spark job as a safe concurrent writer of one Hudi table."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, RetryPolicy
from airflow.sdk.log import mask_secret

from airflow_occ_provider.errors import CommitStateUnknownError, FenceError, JobError, WriteConflictError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.hudi.early_detection import EarlyDetection
from airflow_occ_provider.hudi.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.options import is_secret
from airflow_occ_provider.hudi.strategy import Strategy
from airflow_occ_provider.jobs import clean_job
from airflow_occ_provider.jobs.attempt import prepared, refuse_unproven
from airflow_occ_provider.jobs.commit import NO_COMMIT, Commit
from airflow_occ_provider.jobs.outcome import DriverLog, Outcome
from airflow_occ_provider.jobs.record import digest
from airflow_occ_provider.jobs.settle import Settlement, settle
from airflow_occ_provider.jobs.site import read_site
from airflow_occ_provider.jobs.survivor import Wait
from airflow_occ_provider.operators.admitted import Admitted, AdmittedOperator
from airflow_occ_provider.operators.choices import early_choice, refuse_wrong_pairs, resolution_choice
from airflow_occ_provider.operators.claim import known_options
from airflow_occ_provider.operators.driver import Follower
from airflow_occ_provider.operators.earlier_tries import EarlierTries
from airflow_occ_provider.operators.lease_audit import (
    CommitLockAudit,
    audit_lease,
    audit_scope,
    planned_partitions,
)
from airflow_occ_provider.operators.preparation import Preparation, Protection, prepare, sign
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES, HudiConflictRetryPolicy
from airflow_occ_provider.operators.task_run import TaskRun, known_state, now_ms
from airflow_occ_provider.operators.told_attempt import ToldAttempt, tell_oddities
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers.survivor import HudiSurvivorTrigger

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context


class HudiWriteOperator(AdmittedOperator):
    """Run a PySpark job as a safe concurrent writer of one Hudi table.

    It is a ``SparkSubmitOperator`` with a table: the job is yours, unmodified, and everything that
    operator takes still works. Optimistic concurrency control, the lock, early conflict detection
    and lazy cleaning reach the job through Hudi's own global configuration. A driver that does not
    read it never runs the job. What came of the attempt is read from the table, a conflict is
    retried, and a commit of this task run that is already in the table is never made twice.

    :param table: base path of the table that the job writes, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param scope: the partitions that the job will touch, each with all below it, such as
        ``["dt=2026-11-21"]``: it writes them alone, beside writers of others. By default nobody knows:
        it writes optimistically beside others who do not know, and alone after a lost conflict.
        (templated)
    :param key_safe: whether no two writers may insert the same new key, which Hudi's check does not
        see; all writers of the table should say the same. It writes its scope alone, and is stopped
        where it loses its lease.
    :param reads_table: whether the job reads the table that it writes (MERGE, UPDATE, SCD2), so that a
        rival's commit in between would be lost. What follows is as for ``key_safe``.
    :param admission: ``"queue"`` to stand in line for the table before the job runs, without a worker
        slot, or ``"off"`` to run at once.
    :param admission_timeout: how long to wait in line before the task fails.
    :param storage_conn_id: Airflow connection of the table's storage, for reading its metadata; by
        default the credentials that the worker itself has. (templated)
    :param early_conflict_detection: whether Hudi looks for rivals while it writes, not only when it
        commits: ``"off"``, ``"on"`` (the strategy that suits the storage), or one of Hudi's own:
        ``"simple_direct"``, ``"transaction_direct"``, ``"timeline_server"``.
    :param conflict_resolution: Hudi's conflict resolution strategy: ``"simple"``,
        ``"bucket_index"``, or ``"prefer_writer"``, which all writers and table services of the table
        must share; by default the one that Hudi infers from the index.
    :param hudi_options: further Hudi options for the job. (templated)
    :param require_commit: whether a job that ends well but writes nothing fails the task.
    :param survivor_timeout: how long to wait, without a worker slot, for the driver of an earlier try
        that nobody saw end and that still writes; then the task fails as *commit state unknown*.
    :param job_retries: how often the job's own errors are retried; by default ``retries`` where it
        was given, else Airflow's ``default_task_retries``. Conflicts have budgets of their own.
    :param retries: upper bound of all retries of the task, whatever their cause.
    :param retry_policy: what is retried, how often and when.

    The result is a dictionary: ``instant``, ``action``, ``operation``, ``partitions``,
    ``file_groups``, ``records``, ``seconds``; ``instant`` is ``None`` where nothing was written.
    Every outlet's asset event carries the same facts.
    """

    template_fields: Sequence[str] = (
        *AdmittedOperator.template_fields,
        "table",
        "lock_conn_id",
        "storage_conn_id",
        "scope",
        "hudi_options",
        "hudi_defaults",
        "submission",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("conf", "env_vars", "scope", "hudi_options", "hudi_defaults", "submission"), "json"
    )
    overwrite_rtif_after_execution = True
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        table: str,
        storage_conn_id: str | None = None,
        early_conflict_detection: bool | EarlyDetection | str = EarlyDetection.ON,
        conflict_resolution: Strategy | str | None = None,
        hudi_options: Mapping[str, Any] | None = None,
        require_commit: bool = False,
        survivor_timeout: timedelta = timedelta(hours=12),
        job_retries: int | None = None,
        retries: int | None = DEFAULT_RETRIES,
        retry_policy: RetryPolicy | None = HudiConflictRetryPolicy(),  # noqa: B008 - Airflow reads defaults here
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, retries=retries, retry_policy=retry_policy, **kwargs)
        self.storage_conn_id = storage_conn_id
        self.early_conflict_detection = early_choice(early_conflict_detection)
        self.conflict_resolution = resolution_choice(conflict_resolution)
        refuse_wrong_pairs(
            table, self.early_conflict_detection, self.conflict_resolution, hudi_options or {}
        )
        self.hudi_options = hudi_options
        self.require_commit = require_commit
        self.survivor_timeout = survivor_timeout
        self.job_retries = job_retries
        self.hudi_defaults: dict[str, str] = {}
        self._run: TaskRun | None = None

    def render_template_fields(
        self, context: Context, jinja_env: jinja2.Environment | None = None
    ) -> None:
        """Render the fields, then add what the job will be given, so that the UI shows it."""
        super().render_template_fields(context, jinja_env)
        run = self._task_run(context)
        with known_state(run):
            self._prepare(context, run)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the job once, ask the table what came of it, and return that or raise.

        Before it, whatever earlier tries have left is settled: a driver that lives is ended or
        waited for, and a commit that it made is this task's result.
        """
        return self._execute(context)

    def execute_after_wait(self, context: Context, event: object) -> dict[str, Any]:  # noqa: ARG002
        """Go on after ``HudiSurvivorTrigger`` has fired, whatever it says: the table decides."""
        return self._execute(context)

    def _execute(self, context: Context) -> dict[str, Any]:
        if isinstance(self.retry_policy, HudiConflictRetryPolicy):
            self.retry_policy.warn_of_few(self.retries or 0, self.log)
        started = time.monotonic()
        run = self._task_run(context)
        with known_state(run):
            commit = self._settle_earlier(context, run)
        if commit is None:
            with self._admitted(context, run, self._known_options(context, run)) as admitted:
                commit = self._attempt(context, run, admitted)
        result = {
            **(commit.facts() if commit else NO_COMMIT),
            "seconds": round(time.monotonic() - started, 1),
        }
        self._tell_outlets(context, result)
        tell_oddities(run.record, self._table.snapshot(missing_ok=True), self.log)
        run.succeed()
        return result

    def _task_run(self, context: Context) -> TaskRun:
        if self._run is None:
            self._run = TaskRun(context)
        return self._run

    @property
    def _digest(self) -> str:
        return digest(self.application, self.application_args or (), self.table, self._partitions)

    def _settle_earlier(self, context: Context, run: TaskRun) -> Commit | None:
        """Return what an earlier try committed, once none of them can commit any more."""
        if not self.hudi_defaults:
            self._prepare(context, run)
        rule = HeartbeatRule.of(self.hudi_defaults)
        tries = EarlierTries(
            run,
            lambda table: open_table(table, self.storage_conn_id),
            rule,
            lambda table, instants: self._clean(context, run, table, instants),
            self.log,
        )
        tries.end_drivers()
        commit = tries.commit(self.table, self._digest)
        if commit is None and run.record.unsettled:
            wait = tries.settle()
            commit = tries.commit(self.table, self._digest)
            if wait and commit is None:
                self._wait(run, wait, rule)
        if commit:
            tries.close()
        elif run.record.digest not in ("", self._digest):
            self.log.info("The task's application, arguments, table or scope are others than before.")
            run.abandon(self._digest)
        return commit

    def _wait(self, run: TaskRun, wait: Wait, rule: HeartbeatRule) -> None:
        since_ms = run.record.waiting.since_ms if run.record.waiting else now_ms()
        deadline_ms = since_ms + round(self.survivor_timeout.total_seconds() * 1000)
        if now_ms() >= deadline_ms:
            run.stop_waiting()
            raise CommitStateUnknownError(
                f"commit state unknown: after {self.survivor_timeout} still {wait.reason}",
                remedy="end that driver, or wait for its commit; then clear the task",
            )
        self.defer(
            trigger=HudiSurvivorTrigger(
                table=wait.table,
                storage_conn_id=self.storage_conn_id,
                instants=wait.instants,
                until_ms=wait.until_ms,
                ended_ms=wait.ended_ms,
                deadline_ms=deadline_ms,
                interval_ms=rule.interval_ms,
                tolerable_misses=rule.tolerable_misses,
            ),
            method_name=self.execute_after_wait.__name__,
        )

    def _clean(self, context: Context, run: TaskRun, table: str, instants: Sequence[str]) -> None:
        """Have Hudi roll back a table's failed writes, and some instants."""
        preparation = self._prepare(context, run)
        refuse_unproven(self._job, preparation.site)
        job = replace(self._job, application=clean_job.__file__, arguments=(table, *instants))
        log = DriverLog()
        with prepared(job, preparation.options, preparation.site) as submission:
            exit_code = self._submit(context, submission, Follower(log))
        if exit_code:
            reading = log.read(exit_code, committed=False)
            raise FenceError(
                f"the lazy clean of {table} failed (exit code {exit_code}): {' '.join(reading.lines)}",
                remedy="correct what the task's log shows; nothing was run, so nothing is lost",
            )

    @cached_property
    def _table(self) -> HudiTable:
        return open_table(self.table, self.storage_conn_id)

    def _prepare(self, context: Context, run: TaskRun, order_token: str = "") -> Preparation:
        """Decide what the attempt is given, and have the UI show it."""
        snapshot = self._table.snapshot(missing_ok=True)
        self._claim.refuse_impossible(snapshot.properties)
        protection = Protection(
            self.lock_conn_id,
            self.early_conflict_detection,
            self.conflict_resolution,
            self.hudi_options or {},
        )
        site = read_site(
            self._spark_hook.spark_binary or "spark-submit",
            {**os.environ, **self._env_vars},
            properties_file=self.properties_file,
            class_path=(self.driver_class_path or "").split(os.pathsep),
        )
        signature = sign(context, run.record.identity, snapshot, order_token)
        preparation = prepare(protection, self._job, site, signature, snapshot)
        self.hudi_defaults = dict(preparation.options)
        for key, value in self.hudi_defaults.items():
            if is_secret(key):
                mask_secret(value)
        return preparation

    def _known_options(self, context: Context, run: TaskRun) -> dict[str, str]:
        """Refuse what cannot run, before it stands in line; what is known of the job's options."""
        preparation = self._prepare(context, run)
        refuse_unproven(self._job, preparation.site)
        self.log.info(lock_hook(self.lock_conn_id).check())
        spark = {**dict(preparation.site.spark.options), **(self.conf or {})}
        return known_options(preparation.options, spark, self._table.properties() or {})

    def _attempt(self, context: Context, run: TaskRun, admitted: Admitted) -> Commit | None:
        """Run the job once; what it committed, if anything."""
        preparation = self._prepare(context, run, admitted.order_token)
        self.log.info("Early conflict detection is %s.", preparation.early_detection)
        run.begin(self._digest, preparation.signature.latest_instant)
        told = ToldAttempt(run, self.table, self.log)
        lock = CommitLockAudit(self.lock_conn_id, preparation.options, self._table)
        self._forget_driver()
        admitted.refuse_if_lost()
        try:
            with prepared(self._job, preparation.options, preparation.site) as submission:
                self._submit(context, submission, told.follower)
        except BaseException:  # a task time-out, an interrupt: no word, but nothing left behind
            if self._driver_ended:
                self._settle(preparation, told)
            raise
        commit = self._judge(run, self._settle(preparation, told), admitted)
        if commit:
            lock.refuse_unlocked(commit)
            audit_scope(commit, admitted, self.log)
            audit_lease(commit, admitted)
        return commit

    def _judge(self, run: TaskRun, settlement: Settlement, admitted: Admitted) -> Commit | None:
        """Return the attempt's commit, if there is one and nothing is wrong with it."""
        if settlement.outcome is Outcome.KILLED:
            admitted.refuse_if_lost()
        error = settlement.error()
        if isinstance(error, WriteConflictError):
            run.escalate(planned_partitions(self._table, settlement.instant))
        if error:
            raise error
        if self.require_commit and settlement.outcome is Outcome.NOTHING_WRITTEN:
            raise JobError(
                "the job ended well but wrote nothing",
                outcome=settlement.outcome,
                remedy="correct the job, or allow it with require_commit=False",
            )
        return settlement.commit

    def _settle(self, preparation: Preparation, told: ToldAttempt) -> Settlement:
        exit_code = self._exit_code or 0
        told.ended(exit_code, log_read=bool(self._driver and self._driver.log_read))
        settlement = settle(self._table, preparation.signature, told.log, exit_code)
        told.settled(settlement)
        return settlement

    def _tell_outlets(self, context: Context, result: Mapping[str, Any]) -> None:
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = dict(result)
