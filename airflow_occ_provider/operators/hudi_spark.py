"""``HudiSparkOperator``: the base of this provider's operators with a driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.attempt_recorder import audit_task_run
from airflow_occ_provider.attempts.choices import (
    AdmissionMode,
    constant_options,
    refuse_unfit,
    refuse_wrong_pairs,
)
from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.commit import Commit, facts_of, run_commits
from airflow_occ_provider.attempts.earlier_tries import EarlierTries, end_earlier_drivers
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.jobs import Job, PythonFile
from airflow_occ_provider.attempts.journal import known_state
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.preflight import resume_unwatched
from airflow_occ_provider.attempts.preparation import Preparation, strategy_option
from airflow_occ_provider.attempts.reattach import begun_attempt
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.record_parts import NOTHING_BEFORE
from airflow_occ_provider.attempts.submission import refuse_contradictions
from airflow_occ_provider.attempts.waits import DriverEvent, WaitNeeded, wait_for_survivor
from airflow_occ_provider.attempts.write_attempt import WriteAttempt
from airflow_occ_provider.errors import ConfigurationError, FenceError
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hooks.asset_events import emit_asset_events
from airflow_occ_provider.hooks.driver_output import HudiDriverLink
from airflow_occ_provider.hooks.table_link import HudiTableLink
from airflow_occ_provider.hooks.task_run import due_ms, hide, open_journal
from airflow_occ_provider.hooks.typed_arguments import TypedArguments
from airflow_occ_provider.hooks.via import ViaPlace, operator_path, refuse_beside_via
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.options import RULES, SQL_RULES, writer_options
from airflow_occ_provider.hudi.writer.secrets import all_secrets, redact
from airflow_occ_provider.operators.protected_run import ProtectedRun
from airflow_occ_provider.operators.retry_policy import BudgetedRetries
from airflow_occ_provider.operators.spark_run import SparkRun
from airflow_occ_provider.operators.waits import defer, log_admission
from airflow_occ_provider.storage.address import is_one_table
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.flag import Flag

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import BaseOperator, Context, RetryPolicy


class HudiSparkOperator(BudgetedRetries, TypedArguments, SparkSubmitOperator):  # type: ignore[misc] # a property for a field
    """A ``SparkSubmitOperator`` with a Hudi table, waits, and a driver that it ends.

    A subclass sets the fields below in its own ``__init__``. What it does is in ``_steps``: by default a
    write, which needs the fields of a writer too.

    :param name: of the Spark application, or ``None``.
    :param retries: of the job's own errors.
    :param retry_policy: as for ``HudiWriteOperator``.
    :param via: another operator, by which the driver is started instead of ``spark-submit``: its class,
        or the import path of it. A task with it has no other arguments of ``spark-submit``.
    :param via_kwargs: the arguments of that operator, with the markers of ``airflow_occ_provider.via``
        where it names the driver's PySpark file and its arguments. (templated)
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "table",
        "lock_conn_id",
        "storage_conn_id",
        "hudi_options",
        "hudi_defaults",
        "submission",
        "via_kwargs",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        (
            *("conf", "env_vars", "scope", "instants", "hudi_options", "hudi_defaults", "submission"),
            "via_kwargs",
        ),
        "json",
    ) | {"sql": "sql"}
    operator_extra_links = (HudiTableLink(), HudiDriverLink())
    overwrite_rtif_after_execution = True

    table: str
    lock_conn_id: str
    storage_conn_id: str | None
    early_conflict_detection: EarlyDetection
    conflict_resolution: Strategy | None
    early_stop: EarlyStop = EarlyStop.OFF
    hudi_options: Any
    admission: AdmissionMode
    admission_timeout: timedelta
    preflight_timeout: timedelta = timedelta(0)
    commits: Commits = Commits.ONE
    require_commit: bool | None
    start_timeout: timedelta | None = None
    survivor_timeout: timedelta
    deferrable: bool
    committed: Commit | None = None

    def __init__(
        self,
        *,
        name: str | None,
        retries: int | None,
        retry_policy: RetryPolicy | None,
        via: type[BaseOperator] | str | None = None,
        via_kwargs: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or "", **self.budgeted(retries, retry_policy), **kwargs)
        refuse_unfit({key.removeprefix("_"): value for key, value in vars(self).items()})
        self.via = None if via is None else operator_path(via)
        self.via_kwargs = via_kwargs
        if self.via:
            refuse_beside_via({"name": name, **kwargs})
            self.operator_extra_links = (*self.operator_extra_links, *self.via_place().links)
        self.hudi_defaults: dict[str, str] = {}
        self.submission: dict[str, Any] = {}
        self._watched, self._killed = DriverEvent(), Flag()
        self._spark: SparkRun | None = None
        self._is_resumed = False

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Do the task's work, and return its result by the table."""
        return self._deferring(self._steps, context)

    def resume_execution(
        self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context
    ) -> Any:
        """Continue after a wait: an earlier process of this try has stored a record."""
        self._is_resumed = True
        return super().resume_execution(next_method, next_kwargs, context)

    def execute_after_admission(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the wait for the lease; a lost request is queued again."""
        log_admission(event, self.log)
        return self._deferring(self._resumed_steps, context)

    def execute_after_rivals(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the wait for instants of other writers: the table decides.

        :raises TableUnreadableError: if the triggerer cannot watch the rivals of a lost attempt.
        """
        if event["status"] == "error":
            journal = open_journal(context, is_resumed=self._is_resumed)
            resume_unwatched(journal, event["message"], self.log)
        return self._deferring(self._resumed_steps, context)

    def execute_after_wait(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Continue after ``HudiSurvivorTrigger`` has fired: the table decides."""
        return self._deferring(self._steps, context)

    def execute_after_driver(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after ``HudiDriverTrigger`` has fired: the table decides."""
        self._watched = DriverEvent.of(event)
        return self._deferring(self._resumed_steps, context)

    def on_kill(self) -> None:
        """End the driver and everything that it started, within Airflow's five seconds."""
        self._killed.set()
        if self._spark:
            self._spark.end()  # logs nothing: the interrupted code may hold the log's lock

    def via_place(self) -> ViaPlace:
        """Return the task's other operator as the place of its drivers, before it runs."""
        return ViaPlace(self.via or "", self.via_kwargs, self)

    def job(self, context: Context) -> Job:  # noqa: ARG002
        """Return the task's own job."""
        return PythonFile(self.application, tuple(self.application_args or ()))

    def claim(self, table: HudiTable) -> Claim:
        """Return the claim of the task before it writes."""
        raise NotImplementedError

    def take_arguments(self) -> None:
        """Convert and judge what is known of the arguments when the DAG is parsed.

        :raises ConfigurationError: with the first that is wrong.
        """
        super().take_arguments()
        if self.via:
            self.via_place().refuse()
        elif self.via_kwargs is not None:
            raise ConfigurationError(
                "via_kwargs", "there is no via to give them to", remedy="add via, or leave them out"
            )
        sql = getattr(self, "sql", None)
        options, conf = constant_options(self.hudi_options), constant_options(self.conf)
        self.refuse_options(options)
        refuse_contradictions(
            {"hudi_options": options, "conf": conf}, (*RULES, *SQL_RULES) if sql else RULES
        )

    def refuse_options(self, options: Mapping[str, Any]) -> None:
        """Refuse Hudi options that contradict the operator's parameters.

        :param options: as far as they are known.
        :raises ConfigurationError: with the wrong option, and the remedy.
        """
        refuse_wrong_pairs(self.table, self.early_conflict_detection, self.conflict_resolution, options)

    def _steps(self, context: Context) -> dict[str, Any]:
        """Settle the earlier tries, run the job once, and return its result by the table."""
        started = time.monotonic()
        run = self._protected_run(context)
        run.look_up()
        run.warn_of_few_retries()
        with known_state(run.journal):
            begun = begun_attempt(
                run.journal, run.spark.submitter, self.table, run.work_digest, self.log
            )
            commit = None if begun else self._settle_earlier(run)
        if begun:
            commit = self._continue(run, begun)
        elif commit is None:
            run.refuse_deaths()
            options = run.known_options()
            run.wait_for_rivals(options)
            with run.admitted(options) as admitted:
                run.preflight(HeartbeatRule.of(options)).begin(run.claim, options)
                commit = self._attempt(run, admitted)
        self.committed, record = commit, run.journal.record
        snapshot = run.table.snapshot(missing_ok=True)
        recorded = () if run.user_job.signs else record.instants_in(self.table)
        commits = run_commits(snapshot, record.identities, record.since or NOTHING_BEFORE, recorded)
        if commit and commit.instant.time not in [one.instant.time for one in commits]:  # archived
            commits = [commit, *commits]
        result = {**facts_of(commits), "seconds": round(time.monotonic() - started, 1)}
        emit_asset_events(context, self.outlets, self.table, result)
        audit_task_run(record, snapshot, self.log, commits, self.commits)
        run.journal.succeed()
        return result

    def _settle_earlier(self, run: ProtectedRun) -> Commit | None:
        """Return what an earlier try committed, once none of them can commit any more."""
        journal, work, preparation = run.journal, run.work_digest, run.prepare()
        rule = HeartbeatRule.of(preparation.options)
        tries = EarlierTries(
            journal,
            run.open,
            rule,
            clean=partial(self._roll_back, run, preparation),
            log=self.log,
            signed=run.user_job.signs,
            commits=self.commits,
            signature=preparation.signature,
            due_ms=due_ms(run.context),
        )
        run.recover()
        end_earlier_drivers(journal, run.spark.submitter, self.log)
        commit = tries.commit(self.table, work)
        if commit is None and journal.record.unsettled:
            wait = tries.settle()
            commit = tries.commit(self.table, work)
            if wait and commit is None:
                wait_for_survivor(journal, wait, rule, self.survivor_timeout)
        if commit:
            tries.close()
            run.spark.forget(*journal.record.identities)
        elif journal.record.digest not in ("", work):
            self.log.info("The task's application, arguments, table or scope are others than before.")
            journal.abandon(work)
        return commit

    def _roll_back(self, run: ProtectedRun, preparation: Preparation, table: str) -> None:
        """Have Hudi roll back a table's failed writes, alone if its lock excludes no other process."""
        if not is_one_table(table, self.table):  # an earlier try's table, under that table's own lock
            lock = run.lock.options(table)
            preparation = replace(preparation, options={**preparation.options, **lock})
        with run.alone_if_unlocked(preparation.options, table) as admitted:
            exit_code, reading = run.run_clean(preparation, table, admitted)
            admitted.refuse_if_lost()
        if exit_code:
            raise FenceError(
                f"the lazy clean of {table} failed (exit code {exit_code}): {' '.join(reading.lines)}",
                remedy="correct what the task's log shows; nothing was run, so nothing is lost",
            )

    def _attempt(self, run: ProtectedRun, admitted: Admitted) -> Commit | None:
        """Run the job once; return what it committed, if anything."""
        preparation = run.prepare(admitted.order_token, starts=True)
        return self._write_attempt(run).commit(run.job, run.work_digest, preparation, admitted)

    def _continue(self, run: ProtectedRun, begun: AttemptRecord) -> Commit | None:
        """Continue the attempt that an earlier process began; return what it committed."""
        preparation = run.prepare(begun.order_token)
        with run.admitted(preparation.options, begun, was_leased=self._watched.is_leased) as admitted:
            return self._write_attempt(run).resumed(begun, self._watched, preparation, admitted)

    def _write_attempt(self, run: ProtectedRun) -> WriteAttempt:
        return WriteAttempt(
            run=run.journal,
            table=run.table,
            path=self.table,
            claim=run.claim,
            lock=run.lock,
            spark=run.spark,
            require_commit=self.require_commit,
            commits=self.commits,
            early_stop=self.early_stop,
            is_queued=self.admission is not AdmissionMode.OFF,
            is_deferrable=self.deferrable,
            grants=partial(self._grants, run),
            on_settled=run.measured,
            on_margin=partial(metrics.own_heartbeat_margin, run.work),
            log=self.log,
        )

    def _grants(self, run: ProtectedRun, error: BaseException) -> bool | None:
        """Return whether the retry policy will grant a retry; ``None`` if it is unknown."""
        now = run.journal.now
        try:
            return self.retry_policy.grants(error, now.number, now.max_tries, run.context)
        except (AirflowRuntimeError, OSError, EOFError):  # Airflow asks the policy again
            return None

    def _resumed_steps(self, context: Context) -> dict[str, Any]:
        return self._steps(context)

    def _deferring(self, steps: Callable[[Context], dict[str, Any]], context: Context) -> dict[str, Any]:
        """Do some steps; if one has to wait, defer the task, which then repeats the steps."""
        try:
            return steps(context)
        except WaitNeeded as needed:
            defer(self, needed.wait)

    def _protected_run(self, context: Context) -> ProtectedRun:
        self._spark = SparkRun(self, context, self._killed)
        return ProtectedRun(self, context, self._spark, is_resumed=self._is_resumed)

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        """Render the fields, also of a mapped task, and show the options known by then.

        This asks neither the table, nor the lock service, nor Airflow. The attempt does so later, and
        has the UI show all its options.
        """
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        if parent is not self:
            return
        given = {str(key): str(value) for key, value in (self.hudi_options or {}).items()}
        hide(all_secrets({**given, **(self.conf or {})}))
        ours = {**writer_options({}, {}), **strategy_option(self.conflict_resolution)}
        self.hudi_defaults = redact({**ours, **given})
