"""``HudiKeepLeaseOperator``: renews the lease of a DAG run in the triggerer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_occ_provider.errors import LeaseLostError, LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.operators.release_lease import (
    RETRY_DELAY,
    HudiReleaseLeaseOperator,
    release_lease,
)
from airflow_occ_provider.operators.retry_policy import BudgetedRetries
from airflow_occ_provider.task.run import is_dag_test
from airflow_occ_provider.triggers.lease import FINISHED, HudiKeepLeaseTrigger, states_of

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy

_BEFORE_OTHERS = 1000
_RELEASE_TIMEOUT_S = 60.0
_UNFINISHED = frozenset({"scheduled", "queued", "running", "restarting", "up_for_retry"})


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
