"""``SparkRun``: a task's drivers, wherever they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.outcome import Outcome, Stop, timeout_line
from airflow_occ_provider.attempts.site import Site, StartLimit, read_site
from airflow_occ_provider.attempts.submission import SparkJob, Submission, refuse_unproven
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.waits import DriverEvent
from airflow_occ_provider.errors import TaskEndedError
from airflow_occ_provider.hooks.driver_output import FoldedOutput, show_driver
from airflow_occ_provider.hooks.drivers import drivers_of, follower
from airflow_occ_provider.hooks.launch import Launch
from airflow_occ_provider.hooks.places import PlacedTask
from airflow_occ_provider.hooks.spark import attempt_hook, environment, spark_hook, with_lineage
from airflow_occ_provider.submitters.flag import Flag
from airflow_occ_provider.submitters.processes import LONGEST_END_S
from airflow_occ_provider.submitters.task_drivers import TaskDrivers
from airflow_occ_provider.task.run import show_fields

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

_NAME_OPTION = "spark.app.name"
_ASKED_TO_STOP = Stop(Outcome.ENDED, "the task was marked or cleared, or its worker was stopped")


@dataclass
class SparkRun:
    """The drivers of a task: protected submissions instead of its own, one by one.

    :param killed: set when the task was asked to stop.
    """

    task: HudiSparkOperator
    context: Context
    killed: Flag
    _driver: Driver | None = field(default=None, init=False)
    _site: Mapping[str, str] = field(default_factory=dict, init=False)
    _shows_fields: bool = field(default=True, init=False)

    @cached_property
    def hook(self) -> SparkSubmitHook:
        """The hook with the user's arguments; it looks up the connection once."""
        return spark_hook(self.task)

    @cached_property
    def drivers(self) -> TaskDrivers[Launch]:
        """What runs the drivers: the operator that the task names, or its connection."""
        spark = None if self.task.via else self.hook
        return drivers_of(PlacedTask(self.task, self.context, spark))

    @property
    def deploy_mode(self) -> Any:
        """The deploy mode of the drivers."""
        return self.drivers.deploy_mode

    @property
    def start_limit(self) -> StartLimit:
        """The longest wait for the begin of a driver's job."""
        return StartLimit.of(self.task.start_timeout)

    @property
    def is_remote(self) -> bool:
        """Whether the driver runs elsewhere, and outlives the task."""
        return self.drivers.is_remote

    @property
    def longest_end_s(self) -> float:
        """The most seconds that it takes to end a driver on this host."""
        return LONGEST_END_S

    def read_site(self) -> Callable[[], Site]:
        """Return what waits for the site's configuration, which a thread reads."""
        task = self.task
        elsewhere = self.drivers.site
        if elsewhere:
            return lambda: elsewhere
        with_arguments = partial(
            read_site,
            self.hook.spark_binary or "spark-submit",
            {**os.environ, **environment(task)},
            properties_file=task.properties_file,
            class_path=(task.driver_class_path or "").split(os.pathsep),
        )
        return ThreadPoolExecutor(1, "read-site").submit(with_arguments).result

    def refuse(self, job: SparkJob, site: Site) -> None:
        """Refuse a job that cannot be made safe where its driver would run."""
        self._site = dict(site.spark.options)
        refuse_unproven(job, site, is_remote=self.is_remote)
        self.drivers.refuse(site)

    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> AbstractContextManager[Submission]:
        """Write a driver's input for the time of a block, or until its task is waited for."""
        return self.drivers.prepared(job, options, without=without)

    def forget(self, *identities: str) -> None:
        """Remove what is left of a task run's drivers, all of which have ended."""
        for identity in identities:
            self.drivers.forget(identity)

    def revoke_unrecorded(self, run: str, lease_ttl_s: float) -> Mapping[str, Sequence[Handle]]:
        """Revoke all visible drivers of a task run whose record is lost.

        See ``TaskDrivers``.
        """
        return self.drivers.revoke_unrecorded(run, lease_ttl_s)

    def running(self, handle: Handle, event: DriverEvent) -> Driver:
        """Return the driver that an earlier process of the task has started."""
        stop = _ASKED_TO_STOP if self.killed.is_set() else event.stop
        if stop and stop.outcome is Outcome.TIMED_OUT:  # the triggerer knows its end only
            stop = stop._replace(line=timeout_line(self.task.execution_timeout))
        driver = self._shown(self.submitter(handle))
        if event.is_logged:
            driver.echo = lambda _: None
        driver.handle = handle
        driver.stop = stop
        driver.show(handle)
        self._driver = driver
        return driver

    def submitter(self, handle: Handle) -> Submitter:
        """Return what follows a driver of an earlier process."""
        return follower(handle, self.killed)

    def driver(self, submission: Submission) -> Driver:
        """Return the driver that runs a submission, before it is started.

        :raises TaskEndedError: if the task was asked to stop before.
        """
        if self.killed.is_set():
            raise TaskEndedError(f"no driver was started: {_ASKED_TO_STOP.line}", outcome=Outcome.ENDED)
        hook = self._attempt_hook(submission)
        limit = self.start_limit
        launch = Launch(hook, submission, environment(self.task), self.killed, self._site, limit)
        self._driver = self._shown(self.drivers.submitter(launch))
        return self._driver

    def _shown(self, submitter: Submitter) -> Driver:
        """Return a driver whose output is folded in the task's log, and whose page has a link."""
        output = FoldedOutput(self._echo)
        driver = Driver(submitter, output.add, output.close, show=partial(show_driver, self.context))
        driver.stop_for = self._stop_for
        return driver

    def _echo(self, line: str) -> None:
        if self._shows_fields:  # with the first line: no driver waits for the UI
            self._shows_fields = False
            show_fields(self.task)
        log = self.task.log if self.task.via else self.hook.log
        log.info(line)

    def _attempt_hook(self, submission: Submission) -> SparkSubmitHook | None:
        """Return the hook with an attempt's values instead of the user's; ``None`` beside ``via``.

        The rendered fields show these values, too.
        """
        task = self.task
        name = self._application_name()
        arguments = list(submission.arguments)
        variables = {**environment(task), **submission.environment}
        task.show_submission(
            {
                "name": name,
                "application": submission.application,
                "application_args": arguments,
                "env_vars": variables,
            }
        )
        if task.via:
            return None
        return attempt_hook(
            self.hook,
            name or "",
            arguments,
            variables,
            with_lineage(task.conf or {}, task, self.context),
        )

    def end(self) -> None:
        """End a running driver; safe in a signal handler: takes no lock, logs nothing."""
        if self._driver:
            if self.killed.is_set():
                self._driver.stop = self._driver.stop or _ASKED_TO_STOP
            with suppress(ProcessLookupError):
                self._driver.end()

    def _stop_for(self, error: BaseException) -> Stop | None:
        if isinstance(error, AirflowTaskTimeout):
            return Stop(Outcome.TIMED_OUT, timeout_line(self.task.execution_timeout))
        return _ASKED_TO_STOP if self.killed.is_set() else None

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
