"""``HudiSparkOperator``: the base of this provider's operators with a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.jobs import Job, PythonFile
from airflow_occ_provider.attempts.own_writes import Commits
from airflow_occ_provider.attempts.preparation import strategy_option
from airflow_occ_provider.attempts.rivals import resume_unwatched
from airflow_occ_provider.attempts.scope import Isolation
from airflow_occ_provider.attempts.submission import refuse_contradictions
from airflow_occ_provider.attempts.waits import UNWATCHED, DriverEvent, WaitNeeded
from airflow_occ_provider.attempts.write import ProtectedTry, Write
from airflow_occ_provider.attempts.write_spec import (
    WritePolicy,
    WriteSpec,
    constant_options,
    refuse_foreign,
    refuse_unfit,
)
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook
from airflow_occ_provider.hooks.spark import HudiDriverLink
from airflow_occ_provider.hudi.writer.options import RULES, SQL_RULES, writer_options
from airflow_occ_provider.hudi.writer.secrets import all_secrets, redact
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.operators.retry_policy import BudgetedRetries
from airflow_occ_provider.operators.task_run import AirflowTaskRun, SparkRun, defer, log_admission
from airflow_occ_provider.places.via import ViaPlace, operator_path, refuse_beside_via
from airflow_occ_provider.storage.address import named_partitions
from airflow_occ_provider.submitters.processes import Flag
from airflow_occ_provider.task.arguments import TypedArguments
from airflow_occ_provider.task.run import hide, open_journal, write_policy
from airflow_occ_provider.task.table_link import HudiTableLink, show_table

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import BaseOperator, Context, RetryPolicy

_OF_A_JOB = ("application", "application_args", "isolation")


class HudiSparkOperator(BudgetedRetries, TypedArguments, SparkSubmitOperator):  # type: ignore[misc] # a property for a field
    """A ``SparkSubmitOperator`` with a Hudi table, waits, and a driver that it ends.

    What a subclass does is in ``_steps``: by default a write.

    :param table: base path of the table, absolute or a URL. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param storage_conn_id: Airflow connection of the table's storage, for reading its metadata; by
        default the credentials that the worker itself has. (templated)
    :param hudi_options: further Hudi options for the job: a dictionary, or a template that renders to
        one. (templated)
    :param policy: how the job behaves beside the other writers of the table: a ``WritePolicy``, or a
        dictionary of those of its fields that differ from the site's (``[hudi_occ] write_policy``).
    :param wait_timeout: how long to wait without a worker slot before the task fails: in the queue, for
        rivals outside it, and for the driver of an earlier try whose end was not seen.
    :param name: of the Spark application; by default its DAG, task and run, unless ``conf`` has
        ``spark.app.name``. (templated)
    :param retries: how often the job's own errors are retried. Conflicts, lost locks, killed drivers and
        failures of the infrastructure have budgets of their own, which come on top.
    :param retry_policy: a ``HudiConflictRetryPolicy`` with other budgets or waits, or any other retry
        policy, which then decides on the job's own errors.
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

    program: ClassVar[str] = ""
    """Path of the PySpark file of this provider that the driver runs instead of a job of the user."""
    scope: Any = None
    isolation: Isolation | str = Isolation.SNAPSHOT
    service: ClassVar[Service | None] = None
    commits: Commits = Commits.ONE
    require_commit: bool | None = None
    start_timeout: timedelta | None = None
    deferrable: bool = True
    committed: Commit | None = None

    def __init__(
        self,
        *,
        table: str,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        storage_conn_id: str | None = None,
        hudi_options: Mapping[str, Any] | str | None = None,
        policy: WritePolicy | Mapping[str, Any] | None = None,
        wait_timeout: timedelta = timedelta(hours=12),
        name: str | None = None,
        retries: int | None = None,
        retry_policy: RetryPolicy | None = None,
        via: type[BaseOperator] | str | None = None,
        via_kwargs: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        if self.program:
            refuse_foreign(kwargs, _OF_A_JOB, "the driver runs a program of this provider")
            # Both are named, so that default_args for writers do not reach them.
            kwargs |= {"application": self.program, "application_args": None}
        super().__init__(name=name or "", **self.budgeted(retries, retry_policy), **kwargs)
        self.table = table
        self.lock_conn_id = lock_conn_id
        self.storage_conn_id = storage_conn_id
        self.hudi_options: Any = hudi_options
        self.policy = write_policy(policy)
        self.wait_timeout = wait_timeout
        refuse_unfit({key.removeprefix("_"): value for key, value in vars(self).items()})
        self.via = None if via is None else operator_path(via)
        self.via_kwargs = via_kwargs
        if self.via:
            refuse_beside_via({"name": name, **kwargs})
            self.operator_extra_links = (*self.operator_extra_links, *self.via_place().links)
        self.hudi_defaults: dict[str, str] = {}
        self.submission: dict[str, Any] = {}
        self._watched = UNWATCHED
        self._killed = Flag()
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

    @property
    def is_queued(self) -> bool:
        """Whether the task holds a lease while its driver runs."""
        return self.policy.is_queued

    def via_place(self) -> ViaPlace:
        """Return the task's other operator as the place of its drivers, before it runs."""
        return ViaPlace(self.via or "", self.via_kwargs, self)

    def job(self, context: Context) -> Job:  # noqa: ARG002
        """Return the task's own job."""
        return PythonFile(self.application, tuple(self.application_args or ()))

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
        options = constant_options(self.hudi_options)
        conf = constant_options(self.conf)
        self.refuse_options(options)
        refuse_contradictions(
            {"hudi_options": options, "conf": conf}, (*RULES, *SQL_RULES) if sql else RULES
        )

    def refuse_options(self, options: Mapping[str, Any]) -> None:
        """Refuse Hudi options that contradict the operator's parameters.

        :param options: as far as they are known.
        :raises ConfigurationError: with the wrong option, and the remedy.
        """
        self.policy.refuse_contradictions(self.table, options)

    def spec(self, context: Context) -> WriteSpec:
        """Return what the user wrote, rendered, as one value.

        :raises ConfigurationError: for a value that only its rendering shows to be wrong.
        """
        options = {str(key): value for key, value in (self.hudi_options or {}).items()}
        self.refuse_options(options)
        return WriteSpec(
            self.table,
            self.job(context),
            partitions=named_partitions(self.scope),
            partition_key=context.get("partition_key") or "",
            isolation=Isolation(self.isolation),
            service=self.service,
            policy=self.policy,
            is_queued=self.is_queued,
            wait_timeout=self.wait_timeout,
            commits=self.commits,
            require_commit=self.require_commit,
            is_deferrable=self.deferrable,
            deaths=self.retry_policy.rules.budgets["worker"],
            hudi_options=options,
            conf=dict(self.conf or {}),
        )

    def show_options(self, options: Mapping[str, str]) -> None:
        """Show a driver's options among the rendered fields.

        :param options: without their secrets.
        """
        self.hudi_defaults = dict(options)

    def show_submission(self, submission: Mapping[str, Any]) -> None:
        """Show among the rendered fields what is submitted instead of the user's job."""
        self.submission = dict(submission)

    def show_commit(self, commit: Commit | None) -> None:
        """Show OpenLineage the commit of the task run.

        :param commit: ``None`` if it wrote nothing.
        """
        self.committed = commit

    def _steps(self, context: Context) -> dict[str, Any]:
        """Do the task's work, and return its result by the table."""
        return self._write(context).result()

    def _resumed_steps(self, context: Context) -> dict[str, Any]:
        return self._steps(context)

    def _deferring(self, steps: Callable[[Context], dict[str, Any]], context: Context) -> dict[str, Any]:
        """Do some steps; if one has to wait, defer the task, which then repeats the steps."""
        try:
            return steps(context)
        except WaitNeeded as needed:
            defer(self, needed.wait)

    def _write(self, context: Context) -> Write:
        """Return the write of this try."""
        run = self._protected_run(context)
        run.look_up()  # first: a thread reads Spark's configuration while Airflow answers
        self._tell_people(context)
        return Write(run, self._watched)

    def _tell_people(self, context: Context) -> None:
        """Show the task's table, and warn of too few retries."""
        show_table(context)
        max_tries = context["ti"].max_tries or 0
        self.retry_policy.warn_of_few(max_tries, self.own_retries, self.log)

    def _protected_run(self, context: Context) -> ProtectedTry:
        """Return this try."""
        self._spark = SparkRun(self, context, self._killed)
        task_run = AirflowTaskRun(self, context, self._is_resumed)
        return ProtectedTry(self.spec(context), task_run, self._spark, self.log)

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
        options = {str(key): str(value) for key, value in (self.hudi_options or {}).items()}
        hide(all_secrets({**options, **(self.conf or {})}))
        ours = {**writer_options({}, {}), **strategy_option(self.policy.conflict_resolution)}
        self.hudi_defaults = redact({**ours, **options})
