"""One lease around any tasks of a DAG run: taken, kept and released."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, cast

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_occ_provider.attempts.journal import now_ms
from airflow_occ_provider.attempts.try_lease import AdmissionRequest
from airflow_occ_provider.errors import ConfigurationError, LeaseLostError, LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.leases.lease import Terms, Ticket
from airflow_occ_provider.leases.rules import Scope
from airflow_occ_provider.operators.retry_policy import BudgetedRetries
from airflow_occ_provider.operators.task_run import admission_trigger, log_admission
from airflow_occ_provider.storage.address import canonical_table, named, named_partitions
from airflow_occ_provider.task import metrics
from airflow_occ_provider.task.arguments import TypedArguments
from airflow_occ_provider.task.run import is_dag_test, open_journal, run_owner
from airflow_occ_provider.triggers.lease import FINISHED, HudiKeepLeaseTrigger, states_of

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy


RETRY_DELAY = timedelta(seconds=10)
"""Airflow's scheduler sometimes fails a task that is resumed soon after it was deferred."""

_RELEASE_KEY = "hudi_lease_release"
_BEFORE_OTHERS = 1000
_RELEASE_TIMEOUT_S = 60.0
_UNFINISHED = frozenset({"scheduled", "queued", "running", "restarting", "up_for_retry"})


class HudiReleaseLeaseOperator(BudgetedRetries, BaseOperator):  # type: ignore[misc] # a property
    """Release a run's lease as its teardown; fail without a retry if it was lost.

    ``HudiLeaseOperator.held`` adds it::

        lease = HudiLeaseOperator(task_id="lease", tables=["s3a://lake/trips"])
        lease.release()

    After a kill or a time-out the keeper releases the lease within a quarter of an hour. A retry
    succeeds if an earlier try has released it. A clear is one of the whole lease.

    :param ticket: the result of the ``HudiLeaseOperator``. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param retries: of errors that are neither the lock service's nor Airflow's: these have budgets of
        their own, which come on top.
    :param retry_delay: time before a retry for which the policy sets no delay.
    :param retry_policy: as for ``HudiWriteOperator``.
    """

    template_fields: Sequence[str] = ("ticket", "lock_conn_id")
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        ticket: Any,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        retries: int | None = None,
        retry_delay: timedelta = RETRY_DELAY,
        retry_policy: RetryPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(retry_delay=retry_delay, **self.budgeted(retries, retry_policy), **kwargs)
        self.ticket = ticket
        self.lock_conn_id = lock_conn_id

    def execute(self, context: Context) -> None:
        """Release the lease.

        :raises AirflowFailException: if the lease was gone, and no earlier try had released it.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        store: Any = cast("Any", context)["task_state_store"]
        requested_before = store.get(_RELEASE_KEY) == self.ticket["id"]
        store.set(_RELEASE_KEY, self.ticket["id"])
        released = release_lease(self.lock_conn_id, self.ticket)
        if not released and not requested_before:
            lost = LeaseLostError(
                f"the lease of request {self.ticket['id']} was gone before it was released",
                remedy="find in the keeper's log when it was lost; other writers may have written since",
            )
            raise AirflowFailException(str(lost))
        if released:
            self._send_age()
        self.log.info("The lease was released." if released else "The lease had been released before.")

    def _send_age(self) -> None:
        """Send the age of the lease as a metric, if the ticket says when it was acquired."""
        held_s = (now_ms() - self.ticket.get("held_ms", 0)) / 1000
        for table in self.ticket.get("tables", ()):
            metrics.lease_age(metrics.Work(self.dag_id, self.task_id, table), held_s)


def release_lease(lock_conn_id: str, ticket: Mapping[str, Any]) -> bool:
    """Release a lease; return whether it was still held.

    :param lock_conn_id: Airflow connection of the lock service.
    :param ticket: of the lease, as JSON values.
    :raises LockUnreachableError: if the lock service does not answer in time.
    """
    with closing(lock_hook(lock_conn_id).leases()) as service:
        return service.release(Ticket.from_json(ticket))


class HudiKeepLeaseOperator(BudgetedRetries, BaseOperator):  # type: ignore[misc] # a property
    """Renew a run's lease in the triggerer, from its setup until its teardown.

    It fails if the lease is lost before its release. The release is not downstream of it.
    ``HudiLeaseOperator.held`` adds it::

        lease = HudiLeaseOperator(task_id="lease", tables=["s3a://lake/trips"])
        keeper, release = lease.keep(), lease.release()

    After a kill or a time-out nothing renews the lease, and it expires. A retry goes on, if the lease is
    still there. A clear is one of the whole lease: setup, work and teardowns are cleared together.

    :param ticket: the result of the ``HudiLeaseOperator``. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param priority_weight: high by default, so that it starts before the work that the lease covers.
    :param retries: of errors that are neither the lock service's nor Airflow's: these have budgets of
        their own, which come on top.
    :param retry_delay: time before a retry for which the policy sets no delay.
    :param retry_policy: as for ``HudiWriteOperator``.
    """

    template_fields: Sequence[str] = ("ticket", "lock_conn_id")
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        ticket: Any,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        priority_weight: int = _BEFORE_OTHERS,
        retries: int | None = None,
        retry_delay: timedelta = RETRY_DELAY,
        retry_policy: RetryPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            priority_weight=priority_weight,
            retry_delay=retry_delay,
            **self.budgeted(retries, retry_policy),
            **kwargs,
        )
        self.ticket = ticket
        self.lock_conn_id = lock_conn_id

    def execute(self, context: Context) -> None:  # noqa: ARG002
        """Hand the lease over to the triggerer."""
        if is_dag_test():
            self.log.info("In dag.test() tasks run one after the other: the lease is not renewed.")
            return
        self._hand_over()

    def _hand_over(self) -> None:
        terms = self._terms
        self.defer(
            trigger=HudiKeepLeaseTrigger(
                lock_conn_id=self.lock_conn_id,
                ticket=self.ticket,
                ttl_ms=terms.ttl_ms,
                claim_ttl_ms=terms.claim_ttl_ms,
                release_task_ids=self._release_task_ids,
            ),
            method_name=self.execute_complete.__name__,
        )

    @property
    def _terms(self) -> Terms:
        if "ttl_ms" in self.ticket:  # reading them again may need the lock service
            return Terms(self.ticket["ttl_ms"], self.ticket["claim_ttl_ms"])
        return lock_hook(self.lock_conn_id).terms()

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:
        """Succeed if the lease was released, fail if it was lost.

        :raises AirflowFailException: if it was lost.
        """
        if event.get("name", self.ticket["name"]) != self.ticket["name"]:
            # The event of an earlier try: SQLite reuses the id of a deleted trigger.
            self._hand_over()
        if event["status"] == "error":
            raise LockUnreachableError(event["message"])
        if event["status"] == "check":
            self._check_release(context)
            return
        if event["status"] != "released" or not self._is_released(context):
            lost = LeaseLostError(
                event["message"],
                remedy="check whether it was released by force, or the triggerer was down for longer "
                "than the lease's TTL; clear the work, so that it runs under a lease again",
            )
            raise AirflowFailException(str(lost))
        self.log.info("The lease was released.")

    def _check_release(self, context: Context) -> None:
        """Continue to renew the lease, unless the run's release ended without releasing it."""
        states = self._release_states(context)
        if not states & FINISHED:
            self._hand_over()
        if not release_lease(self.lock_conn_id, self.ticket) and "success" in states:
            self.log.info("The lease was released.")
            return
        raise AirflowFailException("the run's release ended without releasing the lease: it is now")

    def _is_released(self, context: Context) -> bool:
        """Return whether the run's own release ended the lease; true without such a task."""
        deadline = time.monotonic() + _RELEASE_TIMEOUT_S
        while True:
            states = self._release_states(context)
            # The result of a release is not known before it ends.
            if not states & _UNFINISHED or time.monotonic() > deadline:
                return not states or "success" in states
            time.sleep(1)

    def _release_states(self, context: Context) -> set[str | None]:
        """Return the states of the run's releases of this lease; empty without such tasks."""
        releases = self._release_task_ids
        ti = context["ti"]
        return {None, *states_of(ti, releases, ti.get_task_states)} if releases else set()

    @property
    def _release_task_ids(self) -> list[str]:
        beside = {name for lease in self.upstream_list for name in lease.downstream_task_ids}
        dag = self.get_dag()
        return sorted(
            name for name in beside if dag and isinstance(dag.get_task(name), HudiReleaseLeaseOperator)
        )


class HudiLeaseOperator(BudgetedRetries, TypedArguments, BaseOperator):  # type: ignore[misc] # a property
    """Acquire one lease on some tables for a DAG run, as the setup of its tasks.

    The lease covers the ``HudiWriteOperator`` tasks of the run; a task whose scope it does not cover is
    refused. Other writers of this provider are queued::

        lease = HudiLeaseOperator(task_id="lease", tables=["s3a://lake/trips"])
        with lease.held():
            HudiWriteOperator(task_id="write", application="jobs/trips.py", table="s3a://lake/trips")

    A kill while it waits withdraws the request. A retry finds it again, at its place in the queue. A
    clear of a task that it covers clears it too, and so requests a lease anew. A time-out, by
    ``wait_timeout``, fails the task.

    :param tables: base paths of the tables. (templated)
    :param scope: the partitions of each that are written; ``None`` for whole tables. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param wait_timeout: how long the task waits for the lease before it fails.
    :param retries: of errors that are neither the lock service's nor Airflow's: these have budgets of
        their own, which come on top.
    :param retry_delay: time before a retry for which the policy sets no delay.
    :param retry_policy: as for ``HudiWriteOperator``.

    A DAG run holds one lease: name all its tables in one task, which cannot be mapped.

    The result is the ticket of the lease, for the other two operators. It holds no secret.
    """

    template_fields: Sequence[str] = ("tables", "scope", "lock_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"tables": "json", "scope": "json"}
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        scope: str | Sequence[str] | None = None,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        wait_timeout: timedelta = timedelta(hours=12),
        retries: int | None = None,
        retry_delay: timedelta = RETRY_DELAY,
        retry_policy: RetryPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(retry_delay=retry_delay, **self.budgeted(retries, retry_policy), **kwargs)
        self.tables = tables
        self.scope = scope
        self.lock_conn_id = lock_conn_id
        self.wait_timeout: Any = wait_timeout
        self.take_arguments()

    @classmethod
    def partial(cls, **arguments: Any) -> NoReturn:  # noqa: ARG003 - that of any operator
        """Refuse to map a lease.

        :raises ConfigurationError: in any case.
        """
        raise ConfigurationError(
            "partial, expand",
            "a DAG run holds one lease, and a mapped task would request several",
            remedy="name all tables in one HudiLeaseOperator",
        )

    def held(self) -> HudiReleaseLeaseOperator:
        """Return the teardown that releases the lease, and add a task that renews it."""
        self.keep()
        return self.release()

    def keep(self, task_id: str | None = None, **kwargs: Any) -> HudiKeepLeaseOperator:
        """Return the task that renews the lease; it holds no worker slot.

        It is a teardown, so that it is cleared with the work and not ended before the release. It fails
        the run if the lease is lost.

        :param task_id: default: that of this task and ``_keep``.
        """
        kwargs.setdefault("task_group", self.task_group)  # which puts its prefix before the task's id
        keeper = HudiKeepLeaseOperator(
            task_id=task_id or f"{self.label}_keep",
            ticket=self.output,
            lock_conn_id=self.lock_conn_id,
            **kwargs,
        )
        keeper.as_teardown(setups=self, on_failure_fail_dagrun=True)
        return keeper

    def release(self, task_id: str | None = None, **kwargs: Any) -> HudiReleaseLeaseOperator:
        """Return the teardown that releases the lease, also after failed tasks.

        :param task_id: default: that of this task and ``_release``.
        """
        kwargs.setdefault("task_group", self.task_group)
        release = HudiReleaseLeaseOperator(
            task_id=task_id or f"{self.label}_release",
            ticket=self.output,
            lock_conn_id=self.lock_conn_id,
            **kwargs,
        )
        # The keeper fails the run. If this task did, Airflow would ignore the tasks before it.
        release.as_teardown(setups=self)
        return release

    def execute(self, context: Context) -> dict[str, Any]:
        """Request the lease, and return the ticket once it is held."""
        return self._execute(context)

    def execute_after_admission(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Continue after the wait; a lost request is queued again."""
        log_admission(event, self.log)
        return self._execute(context)

    def _execute(self, context: Context) -> dict[str, Any]:
        run = open_journal(context)
        lock = lock_hook(self.lock_conn_id)
        with closing(lock.leases()) as service:
            admission = AdmissionRequest(
                run,
                service,
                run_owner(context),
                terms=lock.terms(),
                timeout=self.wait_timeout,
                log=self.log,
            )
            ticket, status = admission.ask(self._scopes)
            if not status.held:
                self.defer(
                    trigger=admission_trigger(admission.keep(ticket, status), self.lock_conn_id),
                    method_name=self.execute_after_admission.__name__,
                )
            service.renew(ticket, admission.terms.claim_ttl_ms)
        run.succeed()
        tables = sorted({scope.table for scope in self._scopes})
        for table in tables:
            metrics.queue_wait(metrics.Work(self.dag_id, self.task_id, table), admission.waited_s)
        terms = {"ttl_ms": admission.terms.ttl_ms, "claim_ttl_ms": admission.terms.claim_ttl_ms}
        return {**ticket.to_json(), **terms, "tables": tables, "held_ms": now_ms()}

    @property
    def _scopes(self) -> list[Scope]:
        tables = named("tables", self.tables)
        partitions = named_partitions(self.scope)
        return [Scope.of(table, partitions) for table in sorted(set(map(canonical_table, tables)))]
