"""``SparkRun``: ``spark-submit`` on this host, ended with its process tree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.openlineage.utils.spark import (
    inject_parent_job_information_into_spark_properties,
    inject_transport_information_into_spark_properties,
)
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submission import SparkJob, Submission, refuse_unproven
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.waits import DriverEvent
from airflow_occ_provider.errors import ConfigurationError, DriverKilledError
from airflow_occ_provider.hooks.submitters import AggregatedLogs, follower, resource_manager
from airflow_occ_provider.hooks.task_run import show_fields
from airflow_occ_provider.submitters.spark_submit import Flag, SparkSubmit
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster, protected_conf
from airflow_occ_provider.submitters.yarn.resource_manager import ResourceManager

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    from airflow.sdk import Context

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

_NAME_OPTION = "spark.app.name"
_MASTER_WITHOUT_CONNECTION = "yarn"
_ASKED_TO_STOP = Stop(Outcome.KILLED, "the task was asked to stop")


@dataclass
class SparkRun:
    """The drivers of a task: protected submissions instead of its own, one by one.

    :param killed: set when the task was asked to stop.
    """

    task: HudiSparkOperator
    context: Context
    killed: Flag
    _driver: Driver | None = field(default=None, init=False)
    _shows_fields: bool = field(default=True, init=False)

    @cached_property
    def hook(self) -> SparkSubmitHook:
        """The hook with the user's arguments; it looks up the connection once.

        :raises ConfigurationError: if the Spark connection is missing.
        """
        hook, conn_id = self.task._get_hook(), self.task._conn_id
        if hook._java_class:  # run_main.py calls it
            hook._java_class = None
        if hook._connection["master"] == _MASTER_WITHOUT_CONNECTION:
            try:
                BaseHook.get_connection(conn_id)
            except AirflowNotFoundException as error:
                raise ConfigurationError(
                    "conn_id",
                    f"there is no Spark connection {conn_id!r}",
                    remedy="create it in Airflow, or name another",
                ) from error
        return hook

    @property
    def is_remote(self) -> bool:
        """Whether the driver runs in YARN, and outlives the task."""
        connection = self.hook._connection
        return bool(connection["deploy_mode"] == "cluster" and connection["master"] == "yarn")

    def refuse(self, job: SparkJob, site: Site) -> None:
        """Refuse a job that cannot be made safe where its driver would run."""
        refuse_unproven(job, site, is_remote=self.is_remote)
        if self.is_remote:
            _ = self._manager, protected_conf("", job.conf, submission="")

    def running(self, handle: Handle, event: DriverEvent) -> Driver:
        """Return the driver that an earlier process of the task has started."""
        echo = (lambda _: None) if event.is_logged else self._echo
        stop = _ASKED_TO_STOP if self.killed.is_set() else event.stop
        self._driver = Driver(self.submitter(handle), echo, handle, stop)
        return self._driver

    def submitter(self, handle: Handle | None) -> Submitter:
        """Return what follows the drivers of earlier processes."""
        if handle:
            return follower(handle, self.killed)
        return YarnCluster(self._manager) if self.is_remote else SparkSubmit()

    def driver(self, submission: Submission) -> Driver:
        """Return the driver that runs a submission, before it is started.

        :raises DriverKilledError: if the task was asked to stop before.
        """
        if self.killed.is_set():
            raise DriverKilledError(
                "the task was asked to stop, so no driver was started", outcome=Outcome.KILLED
            )
        with self.substituted(submission):
            self._add_lineage()
            hook = self._attempt_hook()
            variables = {**os.environ, **environment(self.task)}
        self._driver = Driver(self._submitter(hook, submission, variables), self._echo)
        return self._driver

    def _submitter(
        self, hook: SparkSubmitHook, submission: Submission, variables: Mapping[str, str]
    ) -> Submitter:
        """Return the submitter of a command that the hook builds."""
        if not self.is_remote:
            command = hook._build_spark_submit_command(submission.application)
            return SparkSubmit(command, variables, self.killed)
        hook._files = ",".join(filter(None, (hook._files, *submission.files)))
        hook._env_vars = environment(self.task)  # the identity is the launcher's alone

        def command_with(conf: Mapping[str, str]) -> list[str]:
            hook._conf = dict(conf)
            return list(hook._build_spark_submit_command(submission.application))

        logs = AggregatedLogs(self._manager)
        return YarnCluster(self._manager, command_with, hook._conf, variables, logs, self.killed)

    @cached_property
    def _manager(self) -> ResourceManager:
        return resource_manager(self.task._conn_id)

    def _echo(self, line: str) -> None:
        if self._shows_fields:  # with the first line: no driver waits for the UI
            self._shows_fields = False
            show_fields(self.task)
        self.hook.log.info(line.strip())

    def _attempt_hook(self) -> SparkSubmitHook:
        """Return the hook with the attempt's values, without another look-up of the connection."""
        hook, task = copy(self.hook), self.task
        hook._name = task.name or ""
        hook._application_args, hook._env_vars, hook._conf = (
            task.application_args,
            task.env_vars,
            task.conf or {},
        )
        return hook

    def _add_lineage(self) -> None:
        """Add OpenLineage's properties, as ``SparkSubmitOperator.execute`` does."""
        task = self.task
        task.conf = task.conf or {}
        if task._openlineage_inject_parent_job_info:
            task.conf = inject_parent_job_information_into_spark_properties(task.conf, self.context)
        if task._openlineage_inject_transport_info:
            task.conf = inject_transport_information_into_spark_properties(task.conf, self.context)

    @contextmanager
    def substituted(self, submission: Submission) -> Iterator[None]:
        """Replace the user's values by the attempt's for the time of a block."""
        task = self.task
        task.submission = {
            "name": self._application_name(),
            "application": submission.application,
            "application_args": list(submission.arguments),
            "env_vars": {**environment(task), **submission.environment},
        }
        given = {name: getattr(task, name) for name in (*task.submission, "conf")}
        vars(task).update(task.submission)
        try:
            yield
        finally:
            vars(task).update(given)

    def end(self) -> None:
        """End a running driver; safe in a signal handler: takes no lock, logs nothing."""
        if self._driver:
            if self.killed.is_set() and isinstance(self._driver.submitter, YarnCluster):
                self._driver.stop = self._driver.stop or _ASKED_TO_STOP
            with suppress(ProcessLookupError):
                self._driver.end()

    @property
    def lives(self) -> bool:
        """Whether a process of the driver may be alive on this host."""
        return self._driver is not None and self._driver.lives

    def _application_name(self) -> Any:
        if self.task.name or _NAME_OPTION in (self.task.conf or {}):
            return self.task.name
        ti = self.context["ti"]
        is_mapped = ti.map_index is not None and ti.map_index >= 0
        return f"{ti.dag_id}.{ti.task_id}{f'[{ti.map_index}]' if is_mapped else ''}.{ti.run_id}"


def environment(task: SparkSubmitOperator) -> dict[str, str]:
    """Return the environment variables that a task gives to ``spark-submit``."""
    return {key: str(value) for key, value in (task.env_vars or {}).items()}
