"""``AirflowTaskRun``: a try of a task as Airflow knows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_occ_provider.assets.table import emit_asset_events
from airflow_occ_provider.attempts.commit import Commit
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.task_run import Measures
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, lock_hook
from airflow_occ_provider.hooks.hudi_table import open_table
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.task import metrics
from airflow_occ_provider.task.deployment import task_owner
from airflow_occ_provider.task.run import (
    bundle_folders,
    due_ms,
    hide,
    longest_absence_ms,
    open_journal,
    sign,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_occ_provider.operators.hudi_spark import HudiSparkOperator


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
        of_work = (metrics.attempt, metrics.own_heartbeat_margin, metrics.queue_wait, metrics.lease_age)
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
