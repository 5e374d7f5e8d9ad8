"""``HudiLeaseOperator``: one lease around any tasks of a DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator

from airflow_occ_provider.attempts.journal import now_ms
from airflow_occ_provider.attempts.try_lease import AdmissionRequest
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.leases.rules import Scope
from airflow_occ_provider.operators.keep_lease import HudiKeepLeaseOperator
from airflow_occ_provider.operators.release_lease import RETRY_DELAY, HudiReleaseLeaseOperator
from airflow_occ_provider.operators.retry_policy import BudgetedRetries
from airflow_occ_provider.operators.waits import admission_trigger, log_admission
from airflow_occ_provider.storage.address import canonical_table, named, named_partitions
from airflow_occ_provider.task import metrics
from airflow_occ_provider.task.arguments import TypedArguments
from airflow_occ_provider.task.deployment import run_owner
from airflow_occ_provider.task.run import open_journal

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy


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
