"""What becomes of a task whose attempt lost a conflict, in a few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.jobs.rival import Rival
from airflow_occ_provider.jobs.settle import Settlement
from airflow_occ_provider.operators.claim import Claim
from airflow_occ_provider.operators.lease_audit import planned_partitions
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
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
    :param claim: what the next try will ask for; ``None`` outside the queue.
    :param options: the job's effective Hudi options.
    :param table: the table.
    """

    policy: RetryPolicy | None
    context: Context
    run: TaskRun
    claim: Claim | None
    options: Mapping[str, str]
    table: HudiTable

    def told(self, settlement: Settlement, rival: Rival) -> str:
        """Return what follows a conflict; empty where it is not known."""
        error, now = settlement.error(), self.run.now
        if not isinstance(error, WriteConflictError):
            return ""
        if not isinstance(self.policy, HudiConflictRetryPolicy):
            return ""
        if not self.policy.grants(error, now.number, now.max_tries, self.context):
            return "none"
        if self.claim is None:
            return "not queued"
        planned = planned_partitions(self.table, settlement.instant)
        wanted = self.claim.scope(self.options, planned).partitions
        if wanted is None:
            return "queued for the whole table"
        return f"queued on {'those' if wanted == rival.partitions else len(wanted)} partitions"
