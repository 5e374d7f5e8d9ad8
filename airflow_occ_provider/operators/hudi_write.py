"""``HudiWriteOperator``: a Spark job as a safe concurrent writer of one table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, RetryPolicy
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.attempt_recorder import audit_task_run
from airflow_occ_provider.attempts.choices import (
    AdmissionMode,
    choice,
    constant_options,
    resolution_choice,
)
from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.commit import NO_COMMIT, Commit
from airflow_occ_provider.attempts.earlier_tries import EarlierTries, end_earlier_drivers
from airflow_occ_provider.attempts.journal import known_state
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.record import digest
from airflow_occ_provider.attempts.waits import wait_for_survivor
from airflow_occ_provider.attempts.write_attempt import WriteAttempt
from airflow_occ_provider.errors import ConfigurationError, FenceError
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator
from airflow_occ_provider.operators.protected_run import ProtectedRun
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES, HudiConflictRetryPolicy
from airflow_occ_provider.storage.address import canonical_table, named_partitions
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.spark_submit import SparkSubmit

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiWriteOperator(HudiSparkOperator):
    """Run a PySpark job as a safe concurrent writer of one Hudi table.

    It is a ``SparkSubmitOperator`` with a table: the job is yours, unmodified, and the arguments of that
    operator still work, except a few that cannot be made safe. Optimistic concurrency control, the
    lock, early conflict detection and lazy cleaning reach the job through Hudi's own global
    configuration. A driver that does not read it never runs the job. The operator reads the attempt's
    outcome from the table, retries a conflict, and never repeats a commit that this task run has made.

    The operator ends a driver whose write another process rolls back, or whose heartbeat can never tick
    again. It does not end a driver with a heartbeat that is only late or expired, but logs that.

    :param table: base path of the table that the job writes, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param scope: the partitions that the job will touch, each with all below it, such as
        ``["dt=2026-11-21"]``: it writes them alone, beside writers of other partitions. Default:
        unknown. Then it writes optimistically beside other writers of unknown scope, and alone after a
        lost conflict. (templated)
    :param key_safe: whether two writers must never insert the same new key, which Hudi's check does
        not detect; all writers of the table should agree on it. If so, the job writes its scope alone,
        and is stopped if it loses its lease.
    :param reads_table: whether the job reads the table that it writes (MERGE, UPDATE, SCD2), so that a
        rival's commit in between would be lost. It has the same effect as ``key_safe``.
    :param admission: ``"queue"`` to be queued for the table before the job runs, without a worker
        slot, or ``"off"`` to run at once.
    :param admission_timeout: how long to wait in the queue, and for rivals outside it, before the task
        fails.
    :param storage_conn_id: Airflow connection of the table's storage, for reading its metadata; by
        default the credentials that the worker itself has. (templated)
    :param early_conflict_detection: whether Hudi looks for rivals while it writes, not only when it
        commits: ``"off"``, ``"on"`` (the strategy that suits the storage), or one of Hudi's own:
        ``"simple_direct"``, ``"transaction_direct"``, ``"timeline_server"``.
    :param conflict_resolution: Hudi's conflict resolution strategy: ``"simple"``,
        ``"bucket_index"``, or ``"prefer_writer"``, which all writers and table services of the table
        must share; by default the one that Hudi infers from the index.
    :param hudi_options: further Hudi options for the job: a dictionary, or a template that renders to
        one. (templated)
    :param require_commit: whether the task fails if the job succeeds but writes nothing.
    :param survivor_timeout: how long to wait, without a worker slot, for the driver of an earlier try
        whose end was not seen and that still writes; then the task fails as *commit state unknown*.
    :param name: of the Spark application; by default its DAG, task and run, unless ``conf`` has
        ``spark.app.name``. (templated)
    :param job_retries: how often the job's own errors are retried; by default ``retries`` if it
        was given, else Airflow's ``default_task_retries``. Conflicts have separate budgets. In a mapped
        task, ``retries`` equal to this operator's default count as not given.
    :param retries: upper bound of all retries of the task, whatever their cause.
    :param retry_policy: decides what is retried, how often and when.

    The result is a dictionary: ``instant``, ``action``, ``operation``, ``partitions``,
    ``file_groups``, ``records``, ``seconds``; ``instant`` is ``None`` if nothing was written.
    Every outlet's asset event carries the same facts; an asset alias gets an
    event of the asset at the table's path, if something was written.
    Of more than 1000 partitions, ``partitions`` names the first, and ``partitions_left_out`` counts
    the rest.
    """

    template_fields: Sequence[str] = (*HudiSparkOperator.template_fields, "scope")
    ui_color = "#d6ecf7"

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
        storage_conn_id: str | None = None,
        early_conflict_detection: bool | EarlyDetection | str = EarlyDetection.ON,
        conflict_resolution: Strategy | str | None = None,
        hudi_options: Mapping[str, Any] | str | None = None,
        require_commit: bool = False,
        survivor_timeout: timedelta = timedelta(hours=12),
        name: str | None = None,
        job_retries: int | None = None,
        retries: int | None = DEFAULT_RETRIES,
        retry_policy: RetryPolicy | None = HudiConflictRetryPolicy(),  # noqa: B008 - Airflow reads defaults here
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, retries=retries, retry_policy=retry_policy, **kwargs)
        self.table = table
        self.lock_conn_id = lock_conn_id
        self.scope = scope
        self.key_safe = key_safe
        self.reads_table = reads_table
        self.admission = choice("admission", AdmissionMode, admission)
        self.admission_timeout = admission_timeout
        self.storage_conn_id = storage_conn_id
        self.early_conflict_detection = choice(
            "early_conflict_detection", EarlyDetection, early_conflict_detection
        )
        self.conflict_resolution = resolution_choice(conflict_resolution)
        self.hudi_options = hudi_options
        self.require_commit = require_commit
        self.survivor_timeout = survivor_timeout
        self.job_retries = job_retries
        if self.admission is AdmissionMode.OFF and (key_safe or reads_table):
            raise ConfigurationError(
                "admission",
                "off, and key_safe or reads_table: Hudi's check does not find what they are about",
                remedy="leave admission out: only the queue keeps such writers apart",
            )
        self.refuse_options(constant_options(hudi_options))

    def execute_after_wait(self, context: Context, event: object) -> dict[str, Any]:  # noqa: ARG002
        """Continue after ``HudiSurvivorTrigger`` has fired: the table decides."""
        return self._deferring(self._steps, context)

    def claim(self, table: HudiTable) -> Claim:  # noqa: ARG002
        """Return the claim of the task before it writes.

        :raises ConfigurationError: if a path of the scope was rendered empty, or is not below a table.
        """
        partitions = named_partitions(self.scope)
        return Claim(canonical_table(self.table), partitions, self.key_safe, self.reads_table)

    def _steps(self, context: Context) -> dict[str, Any]:
        """Settle the earlier tries, run the job once, and return its result by the table."""
        started = time.monotonic()
        run = self._protected_run(context)
        run.look_up()
        run.warn_of_few_retries()
        with known_state(run.journal):
            commit = self._settle_earlier(run)
        if commit is None:
            run.refuse_deaths()
            options = run.known_options()
            run.wait_for_rivals(options)
            with run.admitted(options) as admitted:
                run.wait_for_rivals(options)
                commit = self._attempt(run, admitted)
        result = {
            **(commit.facts() if commit else NO_COMMIT),
            "seconds": round(time.monotonic() - started, 1),
        }
        self._emit_asset_events(context, result)
        audit_task_run(run.journal.record, run.table.snapshot(missing_ok=True), self.log)
        run.journal.succeed()
        return result

    def _digest(self, run: ProtectedRun) -> str:
        arguments = self.application_args or ()
        return digest(self.application, arguments, self.table, run.claim.partitions)

    def _settle_earlier(self, run: ProtectedRun) -> Commit | None:
        """Return what an earlier try committed, once none of them can commit any more."""
        journal, work, preparation = run.journal, self._digest(run), run.prepare()
        rule = HeartbeatRule.of(preparation.options)
        tries = EarlierTries(
            journal,
            run.open,
            rule,
            clean=partial(self._clean, run, preparation),
            log=self.log,
        )
        end_earlier_drivers(journal, SparkSubmit(), self.log)
        commit = tries.commit(self.table, work)
        if commit is None and journal.record.unsettled:
            wait = tries.settle()
            commit = tries.commit(self.table, work)
            if wait and commit is None:
                wait_for_survivor(journal, wait, rule, self.survivor_timeout)
        if commit:
            tries.close()
        elif journal.record.digest not in ("", work):
            self.log.info("The task's application, arguments, table or scope are others than before.")
            journal.abandon(work)
        return commit

    def _clean(self, run: ProtectedRun, preparation: Preparation, table: str) -> None:
        """Have Hudi roll back a table's failed writes, alone if its lock excludes no other process."""
        if table != self.table:  # an earlier try's table, under that table's own lock
            lock = run.lock.options(table)
            preparation = replace(preparation, options={**preparation.options, **lock})
        with run.alone_if_unlocked(preparation.options, table) as admitted:
            exit_code, reading = run.run_clean(preparation, table)
            admitted.refuse_if_lost()
        if exit_code:
            raise FenceError(
                f"the lazy clean of {table} failed (exit code {exit_code}): {' '.join(reading.lines)}",
                remedy="correct what the task's log shows; nothing was run, so nothing is lost",
            )

    def _attempt(self, run: ProtectedRun, admitted: Admitted) -> Commit | None:
        """Run the job once; return what it committed, if anything."""
        preparation = run.prepare(admitted.order_token)
        return self._write_attempt(run).commit(run.job, self._digest(run), preparation, admitted)

    def _write_attempt(self, run: ProtectedRun) -> WriteAttempt:
        return WriteAttempt(
            run=run.journal,
            table=run.table,
            path=self.table,
            claim=run.claim,
            lock=run.lock,
            spark=run.spark,
            require_commit=self.require_commit,
            is_queued=self.admission is not AdmissionMode.OFF,
            grants=partial(self._grants, run),
            on_settled=run.measured,
            on_margin=partial(metrics.own_heartbeat_margin, run.work),
            log=self.log,
        )

    def _grants(self, run: ProtectedRun, error: BaseException) -> bool | None:
        """Return whether the retry policy will grant a retry; ``None`` if it is unknown."""
        policy, now = self.retry_policy, run.journal.now
        if not isinstance(policy, HudiConflictRetryPolicy):
            return None
        try:
            return policy.grants(error, now.number, now.max_tries, run.context)
        except (AirflowRuntimeError, OSError, EOFError):  # Airflow asks the policy again
            return None

    def _emit_asset_events(self, context: Context, result: Mapping[str, Any]) -> None:
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = dict(result)
            elif isinstance(outlet, AssetAlias) and result["instant"]:  # the alias then means the table
                path = self.table.rstrip("/")
                uri = path if "://" in path else f"file://{path}"
                try:
                    context["outlet_events"][outlet].add(Asset(uri), extra=dict(result))
                except ValueError as error:  # Airflow refuses the URI; the commit stays
                    self.log.warning("The alias %s gets no event of %s: %s", outlet.name, uri, error)
