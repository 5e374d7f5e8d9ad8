"""``HudiWriteOperator``: a Spark job as a safe concurrent writer of one Hudi table."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, RetryPolicy

from airflow_occ_provider.errors import CommitStateUnknownError, FenceError, JobError, WriteConflictError
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, METASTORE_LOCK_PROVIDER
from airflow_occ_provider.jobs import clean_job
from airflow_occ_provider.jobs.attempt import prepared
from airflow_occ_provider.jobs.commit import NO_COMMIT, Commit
from airflow_occ_provider.jobs.one_table import OneTable
from airflow_occ_provider.jobs.outcome import Outcome, Stop
from airflow_occ_provider.jobs.record import digest
from airflow_occ_provider.jobs.rival import find_rival
from airflow_occ_provider.jobs.settle import Settlement, settle
from airflow_occ_provider.jobs.survivor import Wait
from airflow_occ_provider.operators.admitted import Admitted
from airflow_occ_provider.operators.choices import AdmissionMode
from airflow_occ_provider.operators.driver import Follower
from airflow_occ_provider.operators.earlier_tries import EarlierTries
from airflow_occ_provider.operators.heartbeat_alarm import HeartbeatAlarm
from airflow_occ_provider.operators.lease_audit import (
    CommitLockAudit,
    audit_lease,
    audit_scope,
    planned_partitions,
)
from airflow_occ_provider.operators.next_try import NextTry
from airflow_occ_provider.operators.preparation import Preparation
from airflow_occ_provider.operators.protected import ProtectedOperator
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES, HudiConflictRetryPolicy
from airflow_occ_provider.operators.rivals import pending_rivals
from airflow_occ_provider.operators.task_run import TaskRun, known_state, now_ms
from airflow_occ_provider.operators.told_attempt import ToldAttempt, tell_oddities
from airflow_occ_provider.triggers.survivor import HudiSurvivorTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context


class HudiWriteOperator(ProtectedOperator):
    """Run a PySpark job as a safe concurrent writer of one Hudi table.

    It is a ``SparkSubmitOperator`` with a table: the job is yours, unmodified, and everything that
    operator takes still works. Optimistic concurrency control, the lock, early conflict detection
    and lazy cleaning reach the job through Hudi's own global configuration. A driver that does not
    read it never runs the job. What came of the attempt is read from the table, a conflict is
    retried, and a commit of this task run that is already in the table is never made twice.

    A driver whose write somebody rolls back, or whose heartbeat can never tick again, is ended; one
    whose heartbeat is merely late or expired is not: the task's log says so, and it runs on.

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
    :param admission_timeout: how long to wait in line, and for rivals outside it, before the task fails.
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
    :param name: of the Spark application; by default its DAG, task and run, unless ``conf`` has
        ``spark.app.name``. (templated)
    :param job_retries: how often the job's own errors are retried; by default ``retries`` where it
        was given, else Airflow's ``default_task_retries``. Conflicts have budgets of their own. A mapped
        task takes ``retries`` that equal our default for none given.
    :param retries: upper bound of all retries of the task, whatever their cause.
    :param retry_policy: what is retried, how often and when.

    The result is a dictionary: ``instant``, ``action``, ``operation``, ``partitions``,
    ``file_groups``, ``records``, ``seconds``; ``instant`` is ``None`` where nothing was written.
    Every outlet's asset event carries the same facts; an asset alias gets an
    event of the asset at the table's path, if something was written.
    Of more than 1000 partitions, ``partitions`` names the first, and ``partitions_left_out`` counts
    the rest.
    """

    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        require_commit: bool = False,
        survivor_timeout: timedelta = timedelta(hours=12),
        job_retries: int | None = None,
        retries: int | None = DEFAULT_RETRIES,
        retry_policy: RetryPolicy | None = HudiConflictRetryPolicy(),  # noqa: B008 - Airflow reads defaults here
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_policy=retry_policy, **kwargs)
        self.require_commit = require_commit
        self.survivor_timeout = survivor_timeout
        self.job_retries = job_retries

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
        self._warn_of_few_retries()
        started = time.monotonic()
        run = self._task_run(context)
        with known_state(run):
            commit = self._settle_earlier(context, run)
        if commit is None:
            self._refuse_deaths(run)
            options = self._known_options(context, run)
            self._wait_for_rivals(run, HeartbeatRule.of(options))
            with self._admitted(context, run, options) as admitted:
                self._wait_for_rivals(run, HeartbeatRule.of(options))
                commit = self._attempt(context, run, admitted)
        result = {
            **(commit.facts() if commit else NO_COMMIT),
            "seconds": round(time.monotonic() - started, 1),
        }
        self._tell_outlets(context, result)
        tell_oddities(run.record, self._table.snapshot(missing_ok=True), self.log)
        run.succeed()
        return result

    @property
    def _digest(self) -> str:
        return digest(self.application, self.application_args or (), self.table, self._partitions)

    def _settle_earlier(self, context: Context, run: TaskRun) -> Commit | None:
        """Return what an earlier try committed, once none of them can commit any more."""
        rule = HeartbeatRule.of(self._prepare(context, run).options)
        tries = EarlierTries(
            run,
            self._open,
            rule,
            lambda table: self._clean(context, run, table),
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

    def _clean(self, context: Context, run: TaskRun, table: str) -> None:
        """Have Hudi roll back a table's failed writes, alone where its lock excludes no process."""
        preparation = self._prepare(context, run)
        if table != self.table:  # of an earlier try: under that table's own lock
            lock = self._lock_hook.options(table)
            preparation = replace(preparation, options={**preparation.options, **lock})
        with self._alone_where_nothing_locks(context, run, preparation.options, table) as admitted:
            exit_code, reading = self._run_ours(context, preparation, clean_job.__file__, (table,))
            admitted.refuse_if_lost()
        if exit_code:
            raise FenceError(
                f"the lazy clean of {table} failed (exit code {exit_code}): {' '.join(reading.lines)}",
                remedy="correct what the task's log shows; nothing was run, so nothing is lost",
            )

    def _attempt(self, context: Context, run: TaskRun, admitted: Admitted) -> Commit | None:
        """Run the job once; what it committed, if anything."""
        preparation = self._prepare(context, run, admitted.order_token)
        self.log.info("Early conflict detection is %s.", preparation.early_detection)
        run.begin(self._digest, preparation.signature.latest_instant)
        told = ToldAttempt(run, self.table, self.log)
        lock = CommitLockAudit(self._lock_hook, preparation.options, self._table)
        alarm, one_table = self._alarm(preparation, told), OneTable(self.table)
        follower = told.follower
        if preparation.options.get(LOCK_PROVIDER) == METASTORE_LOCK_PROVIDER:
            follower = replace(follower, on_line=partial(self._end_at_second_table, one_table, follower))
        next_try = NextTry(
            self.retry_policy,
            context,
            run,
            self._claim,
            is_queued=self.admission is not AdmissionMode.OFF,
            options=preparation.options,
            table=self._table,
            path=self.table,
        )
        self._forget_driver()
        admitted.refuse_if_lost()
        try:
            with prepared(self._job, preparation.options, preparation.site) as submission, alarm:
                self._submit(context, submission, follower)
        except BaseException:  # a task time-out, an interrupt: no word, but nothing left behind
            if self._driver_ended:
                self._settle(preparation, told, one_table.stop or alarm.stop)
            raise
        settlement = self._settle(preparation, told, one_table.stop or alarm.stop, next_try)
        if settlement.loss is None:
            one_table.refuse(committed=None if settlement.unreadable else settlement.commit is not None)
        commit = self._judge(run, settlement, admitted, HeartbeatRule.of(preparation.options))
        if commit:
            lock.refuse_unlocked(commit)
            audit_scope(commit, admitted, self.log)
            audit_lease(commit, admitted)
        return commit

    def _end_at_second_table(self, one_table: OneTable, follower: Follower, line: str) -> None:
        follower.on_line(line)
        if one_table.feed(line):
            self._end_driver()

    def _alarm(self, preparation: Preparation, told: ToldAttempt) -> HeartbeatAlarm:
        return HeartbeatAlarm(
            self._table,
            told.log,
            HeartbeatRule.of(preparation.options),
            self._end_driver,
            logger=self.log,
            on_margin=lambda seconds: metrics.own_heartbeat_margin(self._work, seconds),
        )

    def _judge(
        self, run: TaskRun, settlement: Settlement, admitted: Admitted, rule: HeartbeatRule
    ) -> Commit | None:
        """Return the attempt's commit, if there is one and nothing is wrong with it."""
        if settlement.outcome is Outcome.KILLED:
            admitted.refuse_if_lost()
        error = settlement.error()
        if isinstance(error, WriteConflictError):
            planned = planned_partitions(self._table, settlement.instant)
            touched, own = planned or self._partitions or (), run.record.instants_in(self.table)
            run.escalate(planned, pending_rivals(self._table, settlement, touched, own, rule))
        if error:
            raise error
        if self.require_commit and settlement.outcome is Outcome.NOTHING_WRITTEN:
            raise JobError(
                "the job ended well but wrote nothing",
                outcome=settlement.outcome,
                remedy="correct the job, or allow it with require_commit=False",
            )
        return settlement.commit

    def _settle(
        self,
        preparation: Preparation,
        told: ToldAttempt,
        stop: Stop | None,
        next_try: NextTry | None = None,
    ) -> Settlement:
        exit_code = self._exit_code or 0
        told.ended(exit_code, log_read=bool(self._driver and self._driver.log_read))
        settlement = settle(self._table, preparation.signature, told.log, exit_code, stop=stop)
        if settlement.error():
            rival = find_rival(self._table, settlement.instant, settlement.rival)
            follows = next_try.told(settlement, rival) if next_try else ""
            settlement = rival.explained(settlement, told.seconds, follows)
        told.settled(settlement)
        metrics.attempt(self._work, settlement.outcome, told.seconds)
        return settlement

    def _tell_outlets(self, context: Context, result: Mapping[str, Any]) -> None:
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = dict(result)
            elif isinstance(outlet, AssetAlias) and result["instant"]:  # it stands for the table then
                path = self.table.rstrip("/")
                uri = path if "://" in path else f"file://{path}"
                try:
                    context["outlet_events"][outlet].add(Asset(uri), extra=dict(result))
                except ValueError as error:  # Airflow takes no such URI; what was written stays
                    self.log.warning("The alias %s is not told of %s: %s", outlet.name, uri, error)
