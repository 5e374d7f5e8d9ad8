"""``HudiReleaseLeaseOperator``: releases the lease of a DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException

from airflow_occ_provider.attempts.journal import now_ms
from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.operators.retry_policy import BudgetedRetries
from airflow_occ_provider.task import metrics

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy

RETRY_DELAY = timedelta(seconds=10)
"""Airflow's scheduler sometimes fails a task that is resumed soon after it was deferred."""

_RELEASE_KEY = "hudi_lease_release"


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
