"""``SparkRun``: ``spark-submit`` on this host, followed, and ended together with its process tree."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from airflow_occ_provider.attempts.follower import Follower
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, Submission
from airflow_occ_provider.errors import DriverKilledError, FenceError
from airflow_occ_provider.operators.task_run import show_fields
from airflow_occ_provider.submitters.driver import ClientDriver, Flag

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

_NAME_OPTION = "spark.app.name"


class SparkRun:
    """The driver of a task: submissions of ours in the place of the task's own, one after the other.

    :param task: the operator, rendered.
    :param context: of its try.
    :param killed: set when the task was asked to stop.
    """

    def __init__(self, task: HudiSparkOperator, context: Context, killed: Flag) -> None:
        self._task = task
        self._context = context
        self._killed = killed
        self._follower: Follower | None = None
        self._driver: ClientDriver | None = None

    def submit(self, submission: Submission, follower: Follower) -> int:
        """Run a submission, follow its log, and return the exit code of the ended driver.

        :raises DriverKilledError: if the task was asked to stop before.
        :raises FenceError: if something of the driver lives on.
        """
        self.forget()
        self._follower = follower
        if self._killed.is_set():
            raise DriverKilledError(
                "the task was asked to stop, so no driver was started", outcome=Outcome.KILLED
            )
        try:
            with self.in_place(submission):
                SparkSubmitOperator.execute(self._task, self._context)
        except AirflowException:
            if self.exit_code is None:
                raise
        finally:
            self._follower = None
            if self._driver and self._driver.end():
                self._task.log.info("The Spark driver was ended.")
        if not self.ended:
            raise FenceError(
                "something that the driver started does not end",
                remedy="look in the worker's processes what it waits for, and end it",
            )
        return self.exit_code or 0

    @contextmanager
    def in_place(self, submission: Submission) -> Iterator[None]:
        """Put the attempt's values in the place of the user's for the time of a block."""
        task = self._task
        task.submission = {
            "name": self._application_name(),
            "application": submission.application,
            "application_args": list(submission.arguments),
            "driver_class_path": submission.driver_class_path,
            "env_vars": {**self._env_vars, **submission.environment},
        }
        show_fields(task)
        given = {name: getattr(task, name) for name in task.submission}
        vars(task).update(task.submission)
        try:
            yield
        finally:
            vars(task).update(given)

    def followed(self, hook: SparkSubmitHook) -> SparkSubmitHook:
        """Return the hook of the task; while a driver is submitted, one that follows and can end it."""
        if self._follower is not None:
            self._driver = ClientDriver(
                hook,
                self._follower,
                {**os.environ, **self._env_vars},
                self._env_vars.get(IDENTITY_VARIABLE, ""),
                self._killed,
            )
        return hook

    def forget(self) -> None:
        """Forget the driver before; it has ended."""
        self._task._hook, self._driver = None, None

    def end(self) -> None:
        """End the driver, if one runs; without a lock or a log line, as signal handlers do it."""
        if self._driver:
            with suppress(ProcessLookupError):
                self._driver.end()

    @property
    def lives(self) -> bool:
        """Whether something of the driver may be alive on this host."""
        return self._driver is not None and self._driver.lives

    @property
    def ended(self) -> bool:
        """Whether the driver was started, and nothing of it is alive on this host."""
        return self._driver is not None and self._driver.ended

    @property
    def exit_code(self) -> int | None:
        """The driver's exit code, negative for a signal."""
        return self._driver.exit_code if self._driver else None

    @property
    def log_read(self) -> bool:
        """Whether the driver's log was read to its end."""
        return self._driver is not None and self._driver.log_read

    @property
    def _env_vars(self) -> dict[str, str]:
        return environment(self._task)

    def _application_name(self) -> Any:
        if self._task.name or _NAME_OPTION in (self._task.conf or {}):
            return self._task.name
        ti = self._context["ti"]
        is_mapped = ti.map_index is not None and ti.map_index >= 0
        return f"{ti.dag_id}.{ti.task_id}{f'[{ti.map_index}]' if is_mapped else ''}.{ti.run_id}"


def environment(task: SparkSubmitOperator) -> dict[str, str]:
    """Return the environment variables that a task gives to ``spark-submit``."""
    return {key: str(value) for key, value in (task.env_vars or {}).items()}
