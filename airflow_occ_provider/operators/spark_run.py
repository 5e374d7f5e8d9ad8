"""``SparkRun``: a task's drivers on this host, in YARN or as batches of Livy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.outcome import Outcome, Stop
from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    prepared,
    refuse_unproven,
)
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.waits import DriverEvent
from airflow_occ_provider.errors import DriverKilledError
from airflow_occ_provider.hooks.livy import LivyDrivers, livy_drivers
from airflow_occ_provider.hooks.spark import add_lineage, attempt_hook, environment, spark_hook
from airflow_occ_provider.hooks.submitters import AggregatedLogs, follower, resource_manager
from airflow_occ_provider.hooks.task_run import show_fields
from airflow_occ_provider.submitters.spark_submit import Flag, SparkSubmit
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster, protected_conf
from airflow_occ_provider.submitters.yarn.resource_manager import ResourceManager

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

_NAME_OPTION = "spark.app.name"
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
        """The hook with the user's arguments; it looks up the connection once."""
        return spark_hook(self.task)

    @cached_property
    def livy(self) -> LivyDrivers | None:
        """What runs the drivers if the connection is one of Livy."""
        return livy_drivers(self.task, self.hook)

    @property
    def deploy_mode(self) -> Any:
        """The deploy mode of the drivers; those of Livy find their files as in a cluster."""
        return "cluster" if self.livy else self.hook._connection["deploy_mode"]

    @property
    def is_remote(self) -> bool:
        """Whether the driver runs in YARN or in Livy, and outlives the task."""
        in_yarn = self.deploy_mode == "cluster" and self.hook._connection["master"] == "yarn"
        return self.livy is not None or in_yarn

    def refuse(self, job: SparkJob, site: Site) -> None:
        """Refuse a job that cannot be made safe where its driver would run."""
        refuse_unproven(job, site, is_remote=self.is_remote)
        if self.livy:
            self.livy.refuse(self.hook, environment(self.task))
        elif self.is_remote:
            _ = self._manager, protected_conf("", job.conf, submission="")

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write a driver's input for the time of a block, or until its task is waited for."""
        if self.livy:
            return self.livy.prepared(job, options, without=without)
        return prepared(job, options, without=without, is_remote=self.is_remote)

    def forget(self, identity: str) -> None:
        """Remove the reports of a task run's drivers, and what is left of their input."""
        if self.livy:
            self.livy.folder(identity).remove()

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
        if self.livy:
            return self.livy.follower(self.killed)
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
            add_lineage(self.task, self.context)
            hook = attempt_hook(self.hook, self.task)
            variables = {**os.environ, **environment(self.task)}
        self._driver = Driver(self._submitter(hook, submission, variables), self._echo)
        return self._driver

    def _submitter(
        self, hook: SparkSubmitHook, submission: Submission, variables: Mapping[str, str]
    ) -> Submitter:
        """Return the submitter of a command that the hook builds, or of a batch."""
        if self.livy:
            return self.livy.submitter(hook, submission, self.killed)
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
            if self.killed.is_set() and self._driver.submitter.traits.outlives_task:
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
