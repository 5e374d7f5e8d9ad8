"""``SparkRun``: ``spark-submit`` on this host, ended with its process tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.follower import Follower
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, Submission
from airflow_occ_provider.errors import DriverKilledError
from airflow_occ_provider.operators.task_run import show_fields
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.spark_submit import SparkSubmit

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import Context

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

_NAME_OPTION = "spark.app.name"


class SparkRun:
    """The drivers of a task: protected submissions instead of its own, one by one.

    :param task: the operator, rendered.
    :param context: of its try.
    :param killed: set when the task was asked to stop.
    """

    def __init__(self, task: HudiSparkOperator, context: Context, killed: Flag) -> None:
        self._task = task
        self._context = context
        self._killed = killed
        self._driver: Driver | None = None
        self.echo: Callable[[str], object] = lambda _: None

    def submitter(self, submission: Submission) -> SparkSubmit:
        """Return the submitter that runs a submission as a driver of this host.

        :raises DriverKilledError: if the task was asked to stop before.
        """
        if self._killed.is_set():
            raise DriverKilledError(
                "the task was asked to stop, so no driver was started", outcome=Outcome.KILLED
            )
        with self.substituted(submission):
            self._add_lineage()
            hook = self._task._get_hook()
            command = hook._build_spark_submit_command(submission.application)
            variables = {**os.environ, **environment(self._task)}
        self.echo = lambda line: hook.log.info(line.strip())
        return SparkSubmit(lambda: command, variables, self._killed)

    def follow(self, driver: Driver) -> None:
        """Take over a driver that is about to start: it ends with the task."""
        self._driver = driver

    def submit(self, submission: Submission, follower: Follower) -> int:
        """Run a submission, follow its log, and return the exit code of the ended driver.

        :raises DriverKilledError: if the task was asked to stop before.
        :raises FenceError: if a process of the driver is still alive.
        """
        driver = self._driver = Driver(self.submitter(submission))
        try:
            driver.run(submission.environment.get(IDENTITY_VARIABLE, ""), follower, echo=self.echo)
        finally:
            driver.end()
        driver.refuse_living()
        return driver.exit_code or 0

    def _add_lineage(self) -> None:
        """Add OpenLineage's properties, as ``SparkSubmitOperator.execute`` does."""
        task = self._task
        task.conf = task.conf or {}
        if task._openlineage_inject_parent_job_info:
            task.conf = inject_parent_job_information_into_spark_properties(task.conf, self._context)
        if task._openlineage_inject_transport_info:
            task.conf = inject_transport_information_into_spark_properties(task.conf, self._context)

    @contextmanager
    def substituted(self, submission: Submission) -> Iterator[None]:
        """Replace the user's values by the attempt's for the time of a block."""
        task = self._task
        task.submission = {
            "name": self._application_name(),
            "application": submission.application,
            "application_args": list(submission.arguments),
            "env_vars": {**environment(task), **submission.environment},
        }
        show_fields(task)
        given = {name: getattr(task, name) for name in (*task.submission, "conf")}
        vars(task).update(task.submission)
        try:
            yield
        finally:
            vars(task).update(given)

    def end(self) -> None:
        """End a running driver; safe in a signal handler: takes no lock, logs nothing."""
        if self._driver:
            with suppress(ProcessLookupError):
                self._driver.end()

    @property
    def lives(self) -> bool:
        """Whether a process of the driver may be alive on this host."""
        return self._driver is not None and self._driver.lives

    def _application_name(self) -> Any:
        if self._task.name or _NAME_OPTION in (self._task.conf or {}):
            return self._task.name
        ti = self._context["ti"]
        is_mapped = ti.map_index is not None and ti.map_index >= 0
        return f"{ti.dag_id}.{ti.task_id}{f'[{ti.map_index}]' if is_mapped else ''}.{ti.run_id}"


def environment(task: SparkSubmitOperator) -> dict[str, str]:
    """Return the environment variables that a task gives to ``spark-submit``."""
    return {key: str(value) for key, value in (task.env_vars or {}).items()}
