"""A try of a task as Airflow knows it, its drivers, and how it waits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.exceptions import AirflowRescheduleException, AirflowRuntimeError, AirflowTaskTimeout
from airflow.sdk.timezone import utcnow

from airflow_occ_provider.assets.table import emit_asset_events
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.outcome import Outcome, Stop, timeout_line
from airflow_occ_provider.attempts.site import Site, StartLimit, read_site
from airflow_occ_provider.attempts.submission import SparkJob, Submission, refuse_unproven
from airflow_occ_provider.attempts.submitter import Handle, Submitter
from airflow_occ_provider.attempts.task_run import Measures
from airflow_occ_provider.attempts.waits import (
    AdmissionWait,
    DriverEvent,
    DriverWait,
    InstantsWait,
    TaskWait,
)
from airflow_occ_provider.errors import TaskEndedError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.hooks.spark import (
    FoldedOutput,
    attempt_hook,
    environment,
    show_driver,
    spark_hook,
    with_lineage,
)
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.places.of_task import Launch, PlacedTask, drivers_of, follower
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.processes import LONGEST_END_S, Flag
from airflow_occ_provider.submitters.task_drivers import TaskDrivers
from airflow_occ_provider.task import metrics
from airflow_occ_provider.task.run import (
    bundle_folders,
    due_ms,
    hide,
    longest_absence_ms,
    open_journal,
    show_fields,
    sign,
    task_owner,
)
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from airflow_occ_provider.triggers.idle import HudiSurvivorTrigger
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator

_NAME_OPTION = "spark.app.name"
_ASKED_TO_STOP = Stop(Outcome.ENDED, "the task was marked or cleared, or its worker was stopped")


@dataclass(frozen=True)
class AirflowTaskRun:
    """A try of a task as Airflow knows it: a ``TaskRun``.

    :param task: the operator, rendered.
    :param is_resumed: whether an earlier process of the same try has deferred the task.
    """

    task: HudiSparkOperator
    context: Context
    is_resumed: bool = False

    @property
    def measures(self) -> Measures:
        """Airflow's metrics."""
        work = metrics.Work(self.task.dag_id, self.task.task_id, self.task.table)
        of_work = (
            metrics.attempt,
            metrics.own_heartbeat_margin,
            metrics.queue_wait,
            metrics.lease_age,
            metrics.standby,
        )
        return Measures(*(partial(send, work) for send in of_work))

    @property
    def due_ms(self) -> int:
        """Epoch milliseconds before which the DAG run has run no task."""
        return due_ms(self.context)

    def lock(self) -> HudiLockHook:
        """Return the hook of the lock connection, which Airflow is asked for."""
        return lock_hook(self.task.lock_conn_id)

    def open_table(self, table: str) -> HudiTable:
        """Return the reader of a table, with the task's storage connection."""
        return open_table(table, self.task.storage_conn_id)

    def journal(self) -> Journal:
        """Return the journal in Airflow's task state store."""
        return open_journal(self.context, is_resumed=self.is_resumed)

    def owner(self) -> Owner:
        """Return the task instance."""
        return task_owner(self.context)

    def sign(
        self, identity: str, snapshot: Snapshot, order_token: str, *, is_written: bool = True
    ) -> Signature:
        """Return the signature of the task instance."""
        return sign(self.context, identity, snapshot, order_token, is_written=is_written)

    def absence_ms(self, try_number: int) -> int:
        """Return the longest time from a process's death to the task's next try."""
        return longest_absence_ms(self.task, try_number)

    def folders(self) -> tuple[str, ...]:
        """Return the paths of the task's DAG bundle."""
        return bundle_folders(self.context)

    def grants(self, error: BaseException) -> bool | None:
        """Return whether the retry policy will grant a retry; ``None`` if it is unknown."""
        ti = self.context["ti"]
        try:
            policy = self.task.retry_policy
            return policy.grants(error, ti.try_number, ti.max_tries or 0, self.context)
        except (AirflowRuntimeError, OSError, EOFError):  # Airflow asks the policy again
            return None

    def hide(self, secrets: Iterable[str]) -> None:
        """Have Airflow mask secrets in logs and rendered fields."""
        hide(secrets)

    def show(self, options: Mapping[str, str]) -> None:
        """Have the task's rendered fields show a driver's options."""
        self.task.show_options(options)

    def publish(self, commit: Commit | None, result: Mapping[str, Any]) -> None:
        """Give OpenLineage the commit, and the events of the task's outlets the result."""
        self.task.show_commit(commit)
        emit_asset_events(self.context, self.task.outlets, self.task.table, result)


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
        driver = self._shown(follower(handle, self.killed, has_ended=event.has_ended))
        if event.has_ended:
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


def defer(
    task: HudiSparkOperator,
    wait: TaskWait,
    method_name: str = "",
    kwargs: dict[str, Any] | None = None,
) -> NoReturn:
    """Defer a task until a wait is over.

    :param method_name: the method that resumes it; by default the one for the kind of wait.
    :param kwargs: arguments of the method, besides the event.
    """
    trigger, resume = _trigger(task, wait)
    task.defer(trigger=trigger, method_name=method_name or resume, kwargs=kwargs)
    raise AssertionError("not reached")


def admission_trigger(wait: AdmissionWait, lock_conn_id: str) -> HudiAdmissionTrigger:
    """Return the trigger that waits for a lease."""
    return HudiAdmissionTrigger(
        lock_conn_id=lock_conn_id,
        ticket=wait.ticket.to_json(),
        ttl_ms=wait.ttl_ms,
        claim_ttl_ms=wait.claim_ttl_ms,
        deadline_ms=wait.deadline_ms,
        until_next=wait.until_next,
    )


def log_admission(event: Mapping[str, Any], log: Any) -> None:
    """Log the event of an admission trigger.

    :raises AirflowRescheduleException: if the triggerer has no slot for another waiter.
    """
    if event["status"] == "full":
        log.info("The triggerer is full of waiters: the task asks again in %g s.", event["again_s"])
        raise AirflowRescheduleException(utcnow() + timedelta(seconds=event["again_s"]))
    messages = {
        "granted": "The lease was granted.",
        "next": "The task is the next one in the queue: its driver is started.",
        "lost": f"The queued request was lost ({event.get('message')}): it is queued again, behind "
        "all that are queued now.",
        "timeout": "The wait for the lease has timed out.",
    }
    log.info("%s", messages.get(event["status"]) or event.get("message"))


def _trigger(task: HudiSparkOperator, wait: TaskWait) -> tuple[BaseTrigger, str]:
    if isinstance(wait, AdmissionWait):
        return admission_trigger(wait, task.lock_conn_id), "execute_after_admission"
    if isinstance(wait, InstantsWait):
        return _heartbeat_trigger(task, wait), "execute_after_rivals"
    if isinstance(wait, DriverWait):
        return _driver_trigger(task, wait), "execute_after_driver"
    trigger = HudiSurvivorTrigger(
        table=wait.of.table,
        storage_conn_id=task.storage_conn_id,
        instants=wait.of.instants,
        until_ms=wait.of.until_ms,
        ended_ms=wait.of.ended_ms,
        deadline_ms=wait.deadline_ms,
        interval_ms=wait.rule.interval_ms,
        tolerable_misses=wait.rule.tolerable_misses,
    )
    return trigger, "execute_after_wait"


def _heartbeat_trigger(task: HudiSparkOperator, wait: InstantsWait) -> HudiHeartbeatTrigger:
    return HudiHeartbeatTrigger(
        table=task.table,
        storage_conn_id=task.storage_conn_id,
        instants=list(wait.instants),
        until=[fate.value for fate in wait.until],
        interval_ms=wait.rule.interval_ms,
        tolerable_misses=wait.rule.tolerable_misses,
        deadline_ms=wait.deadline_ms,
    )


def _driver_trigger(task: HudiSparkOperator, wait: DriverWait) -> HudiDriverTrigger:
    lease = wait.lease
    limit = task.execution_timeout
    return HudiDriverTrigger(
        lock_conn_id=task.lock_conn_id,
        ticket=lease.ticket.to_json() if lease else {},
        ttl_ms=lease.ttl_ms if lease else 0,
        claim_ttl_ms=lease.claim_ttl_ms if lease else 0,
        deadline_ms=wait.started_ms + round(limit.total_seconds() * 1000) if limit else 0,
        driver=wait.handle.to_json(),
        is_fenced=wait.is_fenced,
        table=task.table,
        storage_conn_id=task.storage_conn_id,
        interval_ms=wait.rule.interval_ms,
        tolerable_misses=wait.rule.tolerable_misses,
        early_stop=wait.early_stop.value,
        strategy=wait.strategy.value if wait.strategy else None,
    )
