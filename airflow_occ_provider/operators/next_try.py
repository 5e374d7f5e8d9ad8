"""What becomes of a task whose attempt lost a conflict, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowRuntimeError

from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.jobs.rival import Rival
from airflow_occ_provider.jobs.settle import Settlement
from airflow_occ_provider.operators.claim import Claim
from airflow_occ_provider.operators.lease_audit import planned_partitions
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.operators.rivals import pending_rivals
from airflow_occ_provider.operators.task_run import TaskRun
from airflow_occ_provider.storage.table import HudiTable

if TYPE_CHECKING:
    from airflow.sdk import Context, RetryPolicy


@dataclass(frozen=True, slots=True)
class NextTry:
    """What is known of a task's next try before the retry policy is asked.

    :param policy: the task's.
    :param context: of the try that fails.
    :param run: its task run.
    :param claim: what the next try will ask for.
    :param is_queued: whether it asks at all.
    :param options: the job's effective Hudi options.
    :param table: the table.
    :param path: its base path, as the task names it.
    """

    policy: RetryPolicy | None
    context: Context
    run: TaskRun
    claim: Claim
    is_queued: bool
    options: Mapping[str, str]
    table: HudiTable
    path: str

    def told(self, settlement: Settlement, rival: Rival) -> str:
        """Return what follows a conflict; empty where it is not known."""
        error, now = settlement.error(), self.run.now
        policy = self.policy if isinstance(self.policy, HudiConflictRetryPolicy) else None
        if policy is None or not isinstance(error, WriteConflictError):
            return ""
        try:
            granted = policy.grants(error, now.number, now.max_tries, self.context)
        except (AirflowRuntimeError, OSError, EOFError):  # the policy is asked again by Airflow
            return ""
        if not granted:
            return "none"
        planned = planned_partitions(self.table, settlement.instant)
        pending = self._pending(settlement, planned)
        if pending:
            return f"once {_ended(pending)}"
        return self._queued(planned, rival) if self.is_queued else "not queued"

    def _queued(self, planned: tuple[str, ...], rival: Rival) -> str:
        wanted = self.claim.scope(self.options, planned).partitions
        if wanted is None:
            return "queued for the whole table"
        return f"queued on {'those' if wanted == rival.partitions else len(wanted)} partitions"

    def _pending(self, settlement: Settlement, planned: tuple[str, ...]) -> tuple[str, ...]:
        """Return the rivals that the next try waits for."""
        touched, own = planned or self.claim.partitions or (), self.run.record.instants_in(self.path)
        rule = HeartbeatRule.of(self.options)
        return pending_rivals(self.table, settlement, touched, own, rule)


def _ended(instants: tuple[str, ...]) -> str:
    return f"{instants[0]} has ended" if len(instants) == 1 else f"{len(instants)} rivals have ended"
