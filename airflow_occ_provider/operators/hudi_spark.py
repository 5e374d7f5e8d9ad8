"""``HudiSparkOperator``: the base of this provider's operators with a driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_occ_provider.attempts.choices import (
    AdmissionMode,
    refuse_unfit,
    refuse_wrong_pairs,
    rendered_options,
)
from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.preparation import strategy_option
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.options import writer_options
from airflow_occ_provider.hudi.writer.secrets import redact
from airflow_occ_provider.operators.protected_run import ProtectedRun, hide
from airflow_occ_provider.operators.retry_policy import DEFAULT_RETRIES
from airflow_occ_provider.operators.spark_run import SparkRun
from airflow_occ_provider.operators.waits import defer, log_admission
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.spark_submit import Flag

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context


class HudiSparkOperator(SparkSubmitOperator):
    """A ``SparkSubmitOperator`` with a Hudi table, waits, and a driver that it ends.

    A subclass sets the fields below in its own ``__init__``, and does its work in ``_steps``.

    :param name: of the Spark application, or ``None``.
    :param retries: upper bound of all retries of the task.
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
        ("conf", "env_vars", "scope", "instants", "hudi_options", "hudi_defaults", "submission"), "json"
    )
    overwrite_rtif_after_execution = True

    table: str
    lock_conn_id: str
    storage_conn_id: str | None
    early_conflict_detection: EarlyDetection
    conflict_resolution: Strategy | None
    hudi_options: Mapping[str, Any] | str | None
    admission: AdmissionMode
    admission_timeout: timedelta

    def __init__(self, *, name: str | None, retries: int | None, **kwargs: Any) -> None:
        super().__init__(name=name or "", retries=None if retries is None else int(retries), **kwargs)
        self.has_default_retries = isinstance(retries, type(DEFAULT_RETRIES))
        refuse_unfit({key.removeprefix("_"): value for key, value in vars(self).items()})
        self.hudi_defaults: dict[str, str] = {}
        self.submission: dict[str, Any] = {}
        self._killed = Flag()
        self._spark: SparkRun | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Do the task's work, and return its result by the table."""
        return self._deferring(self._steps, context)

    def execute_after_admission(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the wait for the lease; a lost request is queued again."""
        log_admission(event, self.log)
        return self._deferring(self._resumed_steps, context)

    def execute_after_rivals(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the wait for instants of other writers: the table decides.

        :raises TableUnreadableError: if the triggerer cannot watch the table.
        """
        if event["status"] == "error":
            raise TableUnreadableError(event["message"])
        return self._deferring(self._resumed_steps, context)

    def on_kill(self) -> None:
        """End the driver and everything that it started, within Airflow's five seconds."""
        self._killed.set()
        if self._spark:
            self._spark.end()  # logs nothing: the interrupted code may hold the log's lock

    def claim(self, table: HudiTable) -> Claim:
        """Return the claim of the task before it writes."""
        raise NotImplementedError

    def refuse_options(self, options: Mapping[str, Any]) -> None:
        """Refuse Hudi options that contradict the operator's parameters.

        :param options: as far as they are known.
        :raises ConfigurationError: with the wrong option, and the remedy.
        """
        refuse_wrong_pairs(self.table, self.early_conflict_detection, self.conflict_resolution, options)

    def _steps(self, context: Context) -> dict[str, Any]:
        raise NotImplementedError

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
        return ProtectedRun(self, context, self._spark)

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
        given = {key: str(value) for key, value in rendered_options(self.hudi_options).items()}
        hide({**given, **(self.conf or {})})
        ours = {**writer_options({}, {}), **strategy_option(self.conflict_resolution)}
        self.hudi_defaults = redact({**ours, **given})
