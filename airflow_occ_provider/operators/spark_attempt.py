"""``SparkAttemptOperator``: ``spark-submit`` on this host, followed, and ended with all of its."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from airflow_occ_provider.errors import ConfigurationError, DriverKilledError, FenceError
from airflow_occ_provider.jobs.attempt import IDENTITY_VARIABLE, SparkJob, Submission
from airflow_occ_provider.jobs.outcome import Outcome
from airflow_occ_provider.operators.choices import refuse_unfit
from airflow_occ_provider.operators.driver import ClientDriver, Flag, Follower
from airflow_occ_provider.operators.task_run import show_fields

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
        self._follower: Follower | None = None
        self._driver: ClientDriver | None = None
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

    def _submit(self, context: Context, submission: Submission, follower: Follower) -> int:
        """Run a submission, follow its log, and return the exit code of the ended driver.

        :raises DriverKilledError: if the task was asked to stop before.
        :raises FenceError: if something of the driver lives on.
        """
        self._forget_driver()
        self._follower = follower
        if self._killed.is_set():
            raise DriverKilledError(
                "the task was asked to stop, so no driver was started", outcome=Outcome.KILLED
            )
        try:
            with self._in_place(context, submission):
                super().execute(context)
        except AirflowException:
            if self._exit_code is None:
                raise
        finally:
            self._follower = None
            if self._driver and self._driver.end():
                self.log.info("The Spark driver was ended.")
        if not self._driver_ended:
            raise FenceError(
                "something that the driver started does not end",
                remedy="look in the worker's processes what it waits for, and end it",
            )
        return self._exit_code or 0

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
        given = {name: getattr(self, name) for name in self.submission}
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

    def _get_hook(self) -> SparkSubmitHook:
        """Build the hook; while an attempt is submitted, one that follows and can end its driver."""
        hook = super()._get_hook()
        if self._follower is not None:
            self._driver = ClientDriver(
                hook,
                self._follower,
                {**os.environ, **self._env_vars},
                self._env_vars.get(IDENTITY_VARIABLE, ""),
                self._killed,
            )
        return hook

    def _forget_driver(self) -> None:
        self._hook, self._driver = None, None

    @property
    def _driver_ended(self) -> bool:
        return self._driver is not None and self._driver.ended

    @property
    def _exit_code(self) -> int | None:
        return self._driver.exit_code if self._driver else None
