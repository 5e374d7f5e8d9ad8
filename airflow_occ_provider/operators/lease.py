"""``HudiLeaseOperator`` and its companions: one lease around any tasks of a DAG run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk import BaseOperator, RetryPolicy
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.hooks import metrics
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, Terms
from airflow_occ_provider.hooks.lock import lock_hook
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.rules import Scope
from airflow_occ_provider.operators.admission import Admission, run_owner, tell_admission
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.operators.task_run import TaskRun, is_dag_test, now_ms
from airflow_occ_provider.storage.address import canonical_table, named, named_partitions
from airflow_occ_provider.triggers.lease import HudiKeepLeaseTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

_BEFORE_OTHERS = 1000
_RELEASE_KEY = "hudi_lease_release"
# A task that is resumed soon after it was deferred is failed by Airflow's scheduler now and then.
_RETRIES, _RETRY_DELAY = 3, timedelta(seconds=10)
_RELEASE_TIMEOUT_S = 60.0
_UNDER_WAY = frozenset({"scheduled", "queued", "running", "restarting", "up_for_retry"})
_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


class HudiLeaseOperator(BaseOperator):
    """Take one lease on some tables for a DAG run, as the setup of the tasks that work under it.

    Every ``HudiWriteOperator`` of the run passes under it, and is refused where it does not cover the
    writer's scope; no other writer of ours is admitted::

        lease = HudiLeaseOperator(task_id="lease", tables=["s3a://lake/trips"])
        with lease.held():
            first >> second

    :param tables: base paths of the tables. (templated)
    :param scope: the partitions of each that are written; ``None`` for whole tables. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param admission_timeout: how long to wait in line before the task fails.
    :param retries: upper bound of all retries of the task, whatever their cause.
    :param retry_delay: how long to wait before a retry on which the policy has no word.
    :param retry_policy: what is retried, how often and when.

    The result is the ticket, with which a companion knows the lease. It holds no secret.
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
        admission_timeout: timedelta = timedelta(hours=12),
        retries: int | None = _RETRIES,
        retry_delay: timedelta = _RETRY_DELAY,
        retry_policy: RetryPolicy | None = HudiConflictRetryPolicy(),  # noqa: B008 - Airflow reads defaults here
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, retry_policy=retry_policy, **kwargs)
        self.tables = tables
        self.scope = scope
        self.lock_conn_id = lock_conn_id
        self.admission_timeout = admission_timeout

    def held(self) -> HudiReleaseLeaseOperator:
        """Return the teardown of the tasks that work under the lease, with a keeper beside them."""
        self.keep()
        return self.release()

    def keep(self, task_id: str | None = None, **kwargs: Any) -> HudiKeepLeaseOperator:
        """Return the task that keeps the lease alive; it holds no worker slot.

        To Airflow it is a teardown, so that it is cleared with the work, and ended by nobody before
        the release. It fails the run where the lease was lost.

        :param task_id: by default that of this task and ``_keep``.
        """
        keeper = HudiKeepLeaseOperator(
            task_id=task_id or f"{self.task_id}_keep",
            ticket=self.output,
            lock_conn_id=self.lock_conn_id,
            **kwargs,
        )
        keeper.as_teardown(setups=self, on_failure_fail_dagrun=True)
        return keeper

    def release(self, task_id: str | None = None, **kwargs: Any) -> HudiReleaseLeaseOperator:
        """Return the teardown that releases the lease, whatever became of the tasks before it.

        :param task_id: by default that of this task and ``_release``.
        """
        release = HudiReleaseLeaseOperator(
            task_id=task_id or f"{self.task_id}_release",
            ticket=self.output,
            lock_conn_id=self.lock_conn_id,
            **kwargs,
        )
        # The keeper fails the run: were it this one, Airflow would not count the work before it.
        release.as_teardown(setups=self)
        return release

    def execute(self, context: Context) -> dict[str, Any]:
        """Stand in line, and return the ticket once the lease is held."""
        return self._execute(context)

    def execute_after_admission(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on after the wait in line; where the place was lost, it is asked for again."""
        tell_admission(event, self.log)
        return self._execute(context)

    def _execute(self, context: Context) -> dict[str, Any]:
        run = TaskRun(context)
        lock = lock_hook(self.lock_conn_id)
        with closing(lock.leases()) as service:
            admission = Admission(
                run,
                service,
                run_owner(context),
                lock=lock,
                timeout=self.admission_timeout,
                log=self.log,
            )
            ticket, status = admission.ask(self._scopes)
            if not status.held:
                self.defer(
                    trigger=admission.wait(ticket, status),
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


class HudiKeepLeaseOperator(BaseOperator):
    """Keep a run's lease alive in the triggerer, from its setup until its teardown.

    It fails where the lease was gone before its release. The release is not downstream of it.

    :param ticket: the result of the ``HudiLeaseOperator``. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param priority_weight: high, so that it starts before the work that it covers.
    :param retries: of an Airflow that fails a task which is resumed soon after it was deferred.
    :param retry_delay: how long to wait before one.
    """

    template_fields: Sequence[str] = ("ticket", "lock_conn_id")
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        ticket: Any,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        priority_weight: int = _BEFORE_OTHERS,
        retries: int | None = _RETRIES,
        retry_delay: timedelta = _RETRY_DELAY,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            priority_weight=priority_weight, retries=retries, retry_delay=retry_delay, **kwargs
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
            ),
            method_name=self.execute_complete.__name__,
        )

    @property
    def _terms(self) -> Terms:
        if "ttl_ms" in self.ticket:  # asked for anew, they would need a lock service that is there
            return Terms(self.ticket["ttl_ms"], self.ticket["claim_ttl_ms"])
        return lock_hook(self.lock_conn_id).terms()

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:
        """End well where the lease was released, and fail where it was lost.

        :raises AirflowFailException: then.
        """
        if event.get("name", self.ticket["name"]) != self.ticket["name"]:
            # Of an earlier try: SQLite gives the id of a trigger that has gone to the next one.
            self._hand_over()
        if event["status"] == "error":
            raise AirflowException(event["message"])
        if event["status"] == "look":
            self._look(context)
        if event["status"] != "released" or not self._is_released(context):
            lost = LeaseLostError(
                event["message"],
                remedy="look whether somebody released it by force, or the triggerer was away for "
                "longer than its time to live; clear the work, so that it is done under a lease again",
            )
            raise AirflowFailException(str(lost))
        self.log.info("The lease was released.")

    def _look(self, context: Context) -> None:
        """Go on keeping the lease, unless the run's release has ended without releasing it."""
        if not self._release_states(context) & _OVER:
            self._hand_over()
        _release(self.lock_conn_id, self.ticket)
        raise AirflowFailException("the run's release had ended, but not released the lease: it is now")

    def _is_released(self, context: Context) -> bool:
        """Whether it was the run's own release that ended the lease, where it has one."""
        deadline = time.monotonic() + _RELEASE_TIMEOUT_S
        while True:
            states = self._release_states(context)
            # It has still to say whether it found the lease.
            if not states & _UNDER_WAY or time.monotonic() > deadline:
                return not states or "success" in states
            time.sleep(1)

    def _release_states(self, context: Context) -> set[str | None]:
        """Return the states of the run's releases of this lease; empty where it has none."""
        ti: Any = context["ti"]
        beside = {name for lease in self.upstream_list for name in lease.downstream_task_ids}
        dag = self.get_dag()
        releases = [
            name for name in beside if dag and isinstance(dag.get_task(name), HudiReleaseLeaseOperator)
        ]
        if not releases:
            return set()
        found = ti.get_task_states(dag_id=ti.dag_id, task_ids=releases, run_ids=[ti.run_id])
        return {None, *found.get(ti.run_id, {}).values()}


class HudiReleaseLeaseOperator(BaseOperator):
    """Release a run's lease, as its teardown; fail, and do not try again, where it had been lost.

    :param ticket: the result of the ``HudiLeaseOperator``. (templated)
    :param lock_conn_id: Airflow connection of the lock service. (templated)
    :param retries: where the lock service does not answer.
    :param retry_delay: how long to wait before one.
    """

    template_fields: Sequence[str] = ("ticket", "lock_conn_id")
    ui_color = "#d6ecf7"

    def __init__(
        self,
        *,
        ticket: Any,
        lock_conn_id: str = HudiLockHook.default_conn_name,
        retries: int | None = _RETRIES,
        retry_delay: timedelta = _RETRY_DELAY,
        **kwargs: Any,
    ) -> None:
        super().__init__(retries=retries, retry_delay=retry_delay, **kwargs)
        self.ticket = ticket
        self.lock_conn_id = lock_conn_id

    def execute(self, context: Context) -> None:
        """Leave the line.

        :raises AirflowFailException: if the lease was gone, and no earlier try has released it.
        :raises LockUnreachableError: if the lock service does not answer in time.
        """
        store: Any = cast("Any", context)["task_state_store"]
        asked_before = store.get(_RELEASE_KEY) == self.ticket["id"]
        store.set(_RELEASE_KEY, self.ticket["id"])
        released = _release(self.lock_conn_id, self.ticket)
        if not released and not asked_before:
            lost = LeaseLostError(
                f"the lease of request {self.ticket['id']} was gone before it was released",
                remedy="look in the keeper's log when it was lost; others may have written since",
            )
            raise AirflowFailException(str(lost))
        if released:
            self._tell_age()
        self.log.info("The lease was released." if released else "The lease had been released before.")

    def _tell_age(self) -> None:
        """Tell how old the lease became; a ticket of an earlier release does not say."""
        held_s = (now_ms() - self.ticket.get("held_ms", 0)) / 1000
        for table in self.ticket.get("tables", ()):
            metrics.lease_age(metrics.Work(self.dag_id, self.task_id, table), held_s)


def _release(lock_conn_id: str, ticket: Mapping[str, Any]) -> bool:
    """Leave the line; whether the lease was still there."""
    with closing(lock_hook(lock_conn_id).leases()) as service:
        return service.release(Ticket.from_json(ticket))
