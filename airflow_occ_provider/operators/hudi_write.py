"""``HudiWriteOperator``: a Spark job as a safe concurrent writer of one Hudi table."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, BaseHook, RetryPolicy
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException
from airflow.sdk.log import mask_secret

from airflow_occ_provider.errors import ConfigurationError, JobError
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.hudi.early_detection import EarlyDetection
from airflow_occ_provider.hudi.options import is_secret
from airflow_occ_provider.hudi.strategy import Strategy
from airflow_occ_provider.jobs.attempt import SparkJob, Submission, prepared, refuse_unproven
from airflow_occ_provider.jobs.commit import NO_COMMIT, earlier_commit
from airflow_occ_provider.jobs.identity import Signature
from airflow_occ_provider.jobs.outcome import DriverLog, Outcome
from airflow_occ_provider.jobs.settle import Settlement, settle
from airflow_occ_provider.jobs.site import Site, read_site
from airflow_occ_provider.operators.choices import early_choice, refuse_wrong_pairs, resolution_choice
from airflow_occ_provider.operators.driver import ClientDriver
from airflow_occ_provider.operators.preparation import Preparation, Protection, prepare, sign
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES, HudiConflictRetryPolicy
from airflow_occ_provider.operators.task_run import TaskRun
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

if TYPE_CHECKING:
    import jinja2
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context


class HudiWriteOperator(SparkSubmitOperator):
    """Run a PySpark job as a safe concurrent writer of one Hudi table.

    It is a ``SparkSubmitOperator`` with a table: the job is yours, unmodified, and everything that
    operator takes still works. Optimistic concurrency control, the lock, early conflict detection
    and lazy cleaning reach the job through Hudi's own global configuration. A driver that does not
    read it never runs the job. What came of the attempt is read from the table, a conflict is
    retried, and a commit of this task run that is already in the table is never made twice.

    :param table: base path of the table that the job writes, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
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
    :param job_retries: how often the job's own errors are retried; by default ``retries`` where it
        was given, else Airflow's ``default_task_retries``. Conflicts have budgets of their own.
    :param retries: upper bound of all retries of the task, whatever their cause.
    :param retry_policy: what is retried, how often and when.

    The result is a dictionary: ``instant``, ``action``, ``operation``, ``partitions``,
    ``file_groups``, ``records``, ``seconds``; ``instant`` is ``None`` where nothing was written.
    Every outlet's asset event carries the same facts.
    """

    template_fields: Sequence[str] = (
        *SparkSubmitOperator.template_fields,
        "table",
        "lock_conn_id",
        "storage_conn_id",
        "hudi_options",
        "hudi_defaults",
        "submission",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("conf", "env_vars", "hudi_options", "hudi_defaults", "submission"), "json"
    )
    overwrite_rtif_after_execution = True
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        table: str,
        lock_conn_id: str = HudiZookeeperLockHook.default_conn_name,
        storage_conn_id: str | None = None,
        early_conflict_detection: bool | EarlyDetection | str = EarlyDetection.ON,
        conflict_resolution: Strategy | str | None = None,
        hudi_options: Mapping[str, Any] | None = None,
        require_commit: bool = False,
        job_retries: int | None = None,
        retries: int | None = DEFAULT_RETRIES,
        retry_policy: RetryPolicy | None = HudiConflictRetryPolicy(),  # noqa: B008 - Airflow reads defaults here
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_policy=retry_policy, **kwargs)
        self.table = table
        self.lock_conn_id = lock_conn_id
        self.storage_conn_id = storage_conn_id
        self.early_conflict_detection = early_choice(early_conflict_detection)
        self.conflict_resolution = resolution_choice(conflict_resolution)
        refuse_wrong_pairs(
            table, self.early_conflict_detection, self.conflict_resolution, hudi_options or {}
        )
        self.hudi_options = hudi_options
        self.require_commit = require_commit
        self.job_retries = job_retries
        self.hudi_defaults: dict[str, str] = {}
        self.submission: dict[str, Any] = {}
        self._prepared: Preparation | None = None
        self._driver_log: DriverLog | None = None
        self._driver: ClientDriver | None = None
        self._killed = threading.Event()

    def render_template_fields(
        self, context: Context, jinja_env: jinja2.Environment | None = None
    ) -> None:
        """Render the fields, then add what the job will be given, so that the UI shows it."""
        super().render_template_fields(context, jinja_env)
        self._prepared = self._prepare(context)
        self.hudi_defaults = dict(self._prepared.options)
        self.log.info("Early conflict detection is %s.", self._prepared.early_detection)
        for key, value in self.hudi_defaults.items():
            if is_secret(key):
                mask_secret(value)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the job once, ask the table what came of it, and return that or raise."""
        if self._prepared is None:
            self.render_template_fields(context)
        prepared_ = self._prepared
        assert prepared_ is not None  # noqa: S101 - rendered above
        self._warn_of_few_retries()
        started = time.monotonic()
        run = TaskRun(context)
        signature = prepared_.signature
        since = run.since(signature.latest_instant)
        commit = earlier_commit(self._table, signature.identity, since)
        if commit is None:
            self._refuse_before_start(prepared_.site)
            commit = self._attempt(context, prepared_).commit
        else:
            self.log.info("Commit %s of an earlier try is in the table: done.", commit.instant)
        result = {
            **(commit.facts() if commit else NO_COMMIT),
            "seconds": round(time.monotonic() - started, 1),
        }
        self._tell_outlets(context, result)
        run.succeed()
        return result

    def on_kill(self) -> None:
        """End the driver and everything that it started, within Airflow's five seconds."""
        self._killed.set()
        self._end_driver()

    @property
    def _env_vars(self) -> dict[str, str]:
        return {key: str(value) for key, value in (self.env_vars or {}).items()}

    @cached_property
    def _table(self) -> HudiTable:
        return open_table(self.table, self.storage_conn_id)

    def _snapshot(self) -> Snapshot:
        return self._table.snapshot(missing_ok=True)

    def _prepare(self, context: Context) -> Preparation:
        snapshot = self._snapshot()
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
        signature = sign(context, TaskRun(context).identity, snapshot)
        return prepare(protection, self._job, site, signature, snapshot)

    def _refuse_before_start(self, site: Site) -> None:
        refuse_unproven(self._job, site)
        self.log.info(lock_hook(self.lock_conn_id).check())

    @property
    def _job(self) -> SparkJob:
        return SparkJob(
            application=self.application,
            arguments=tuple(self.application_args or ()),
            conf=self.conf or {},
            driver_class_path=self.driver_class_path,
            deploy_mode=self._spark_hook._connection["deploy_mode"],
        )

    @cached_property
    def _spark_hook(self) -> SparkSubmitHook:
        """The hook as the user's arguments make it, to ask it for the connection's settings."""
        try:
            BaseHook.get_connection(self._conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                "conn_id",
                f"there is no Spark connection {self._conn_id!r}",
                remedy="create it in Airflow, or name another",
            ) from error
        return self._get_hook()

    def _attempt(self, context: Context, preparation: Preparation) -> Settlement:
        log, signature = DriverLog(), preparation.signature
        self._driver_log = log
        prepared_files = prepared(self._job, preparation.options, preparation.site)
        with prepared_files as submission, self._submitting(submission):
            try:
                exit_code = self._run(context)
            except BaseException:  # a task time-out, an interrupt: no word, but nothing left behind
                self._settle_interrupted(signature, log)
                raise
        settlement = settle(self._table, signature, log, exit_code)
        self._report(settlement)
        error = settlement.error()
        if error is None and self.require_commit and settlement.outcome is Outcome.NOTHING_WRITTEN:
            error = JobError(
                "the job ended well but wrote nothing",
                outcome=settlement.outcome,
                remedy="correct the job, or allow it with require_commit=False",
            )
        if error:
            raise error
        return settlement

    def _run(self, context: Context) -> int:
        """Submit the attempt, follow its log, and return the exit code of the ended driver."""
        self._hook = None
        try:
            super().execute(context)
        except AirflowException:
            if self._exit_code is None:
                raise
        finally:
            self._end_driver()
        return self._exit_code or 0

    @contextmanager
    def _submitting(self, submission: Submission) -> Iterator[None]:
        """Put the attempt's values in the place of the user's while it is submitted."""
        self.submission = {
            "application": submission.application,
            "application_args": list(submission.arguments),
            "driver_class_path": submission.driver_class_path,
            "env_vars": {**self._env_vars, **submission.environment},
        }
        given = {name: getattr(self, name) for name in self.submission}
        vars(self).update(self.submission)
        try:
            yield
        finally:
            vars(self).update(given)

    def _get_hook(self) -> SparkSubmitHook:
        """Build the hook; while an attempt is submitted, one that follows and can end its driver."""
        hook = super()._get_hook()
        if self._driver_log is not None:
            environment = {**os.environ, **self._env_vars}
            self._driver = ClientDriver(
                hook, self._driver_log, environment, self._killed, self._tell_instant
            )
        return hook

    @property
    def _exit_code(self) -> int | None:
        return self._driver.exit_code if self._driver else None

    def _end_driver(self) -> None:
        if self._driver and self._driver.end():
            self.log.info("The Spark driver was ended.")

    def _tell_instant(self, instant: str) -> None:
        self.log.info("Hudi instant %s was requested by this driver.", instant)

    def _settle_interrupted(self, signature: Signature, log: DriverLog) -> None:
        exit_code = self._exit_code
        if exit_code is not None:
            self._report(settle(self._table, signature, log, exit_code))

    def _report(self, settlement: Settlement) -> None:
        self.log.info(
            "Outcome: %s (instant %s, exit code %s).",
            settlement.outcome,
            settlement.instant or "-",
            settlement.exit_code,
        )
        for line in settlement.lines:
            self.log.info("Decided by: %s", line)
        for instant in settlement.retired:
            self.log.info(
                "The driver left instant %s unfinished; its heartbeat was removed, so that nobody "
                "waits for it and the next lazy clean rolls it back.",
                instant,
            )

    def _tell_outlets(self, context: Context, result: Mapping[str, Any]) -> None:
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = dict(result)

    def _warn_of_few_retries(self) -> None:
        policy = self.retry_policy
        if isinstance(policy, HudiConflictRetryPolicy) and (self.retries or 0) < policy.conflict_budget:
            self.log.warning(
                "retries=%s is below the conflict budget of %s: Airflow stops retrying first.",
                self.retries,
                policy.conflict_budget,
            )
