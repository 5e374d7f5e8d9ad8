"""``SparkAttemptOperator``: ``spark-submit`` on this host, followed, and ended with all of its."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.follower import Follower
from airflow_occ_provider.attempts.guards.guard import Guard
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, SparkJob, Submission
from airflow_occ_provider.errors import ConfigurationError, DriverKilledError, FenceError
from airflow_occ_provider.operators.choices import refuse_unfit
from airflow_occ_provider.operators.task_run import show_fields
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.spark_submit import SparkSubmit

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

_NAME_OPTION = "spark.app.name"


class SparkAttemptOperator(SparkSubmitOperator):
    """A ``SparkSubmitOperator`` that can run a submission of ours in the place of the user's job.

    :param name: of the Spark application; by default its DAG, task and run, unless ``conf`` has
        ``spark.app.name``. (templated)
    """

    def __init__(self, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name=name or "", **kwargs)
        refuse_unfit({name.removeprefix("_"): value for name, value in vars(self).items()})
        self.submission: dict[str, Any] = {}
        self._driver: Driver | None = None
        self._killed = Flag()

    def on_kill(self) -> None:
        """End the driver and everything that it started, within Airflow's five seconds."""
        self._killed.set()
        if self._driver:
            self._driver.end()  # without a word: the log's lock may be held where the signal came

    @property
    def _env_vars(self) -> dict[str, str]:
        return {key: str(value) for key, value in (self.env_vars or {}).items()}

    @property
    def _job(self) -> SparkJob:
        """The user's job."""
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

    def _submit(
        self,
        context: Context,
        submission: Submission,
        follower: Follower,
        guards: Sequence[Guard] = (),
    ) -> int:
        """Run a submission, follow its log, and return the exit code of the ended driver.

        :raises DriverKilledError: if the task was asked to stop before.
        :raises FenceError: if something of the driver lives on.
        """
        self._forget_driver()
        if self._killed.is_set():
            raise DriverKilledError(
                "the task was asked to stop, so no driver was started", outcome=Outcome.KILLED
            )
        with self._in_place(context, submission):
            self._inject_lineage(context)
            hook = self._get_hook()
            environment = {**os.environ, **self._env_vars}
            command = partial(hook._build_spark_submit_command, self.application)
            driver = self._driver = Driver(SparkSubmit(command, environment, self._killed))
            try:
                driver.run(
                    environment.get(IDENTITY_VARIABLE, ""),
                    follower,
                    guards,
                    echo=lambda line: hook.log.info(line.strip()),
                )
            finally:
                if driver.end():
                    self.log.info("The Spark driver was ended.")
        if not driver.ended:
            raise FenceError(
                "something that the driver started does not end",
                remedy="look in the worker's processes what it waits for, and end it",
            )
        return driver.exit_code or 0

    def _inject_lineage(self, context: Context) -> None:
        """Add OpenLineage's properties, as ``SparkSubmitOperator.execute`` does."""
        self.conf = self.conf or {}
        if self._openlineage_inject_parent_job_info:
            self.conf = inject_parent_job_information_into_spark_properties(self.conf, context)
        if self._openlineage_inject_transport_info:
            self.conf = inject_transport_information_into_spark_properties(self.conf, context)

    @contextmanager
    def _in_place(self, context: Context, submission: Submission) -> Iterator[None]:
        """Put the attempt's values in the place of the user's while it is submitted."""
        self.submission = {
            "name": self._application_name(context),
            "application": submission.application,
            "application_args": list(submission.arguments),
            "driver_class_path": submission.driver_class_path,
            "env_vars": {**self._env_vars, **submission.environment},
        }
        show_fields(self)
        given = {name: getattr(self, name) for name in (*self.submission, "conf")}
        vars(self).update(self.submission)
        try:
            yield
        finally:
            vars(self).update(given)

    def _application_name(self, context: Context) -> str:
        if self.name or _NAME_OPTION in (self.conf or {}):
            return self.name
        ti = context["ti"]
        is_mapped = ti.map_index is not None and ti.map_index >= 0
        return f"{ti.dag_id}.{ti.task_id}{f'[{ti.map_index}]' if is_mapped else ''}.{ti.run_id}"

    def _forget_driver(self) -> None:
        self._driver = None

    @property
    def _driver_ended(self) -> bool:
        return self._driver is not None and self._driver.ended

    @property
    def _exit_code(self) -> int | None:
        return self._driver.exit_code if self._driver else None

    @property
    def _stop(self) -> Stop | None:
        """Why a guard has ended the driver, if one has."""
        return self._driver.stop if self._driver else None
