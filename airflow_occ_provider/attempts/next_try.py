"""Describes in a few words what follows a lost conflict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_occ_provider.attempts.claim import Claim
from airflow_occ_provider.attempts.journal import Journal
from airflow_occ_provider.attempts.lease_audit import planned_partitions
from airflow_occ_provider.attempts.rival import Rival
from airflow_occ_provider.attempts.rivals import pending_rivals
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class NextTry:
    """The known facts of a task's next try, before Airflow asks the retry policy.

    :param grants: whether the policy grants a retry after an error; ``None`` if it is unknown.
    :param run: the task run.
    :param claim: what the next try will request.
    :param is_queued: whether it requests a lease at all.
    :param options: the job's effective Hudi options.
    :param table: the table.
    :param path: its base path, as the task names it.
    """

    grants: Callable[[WriteConflictError], bool | None]
    run: Journal
    claim: Claim
    is_queued: bool
    options: Mapping[str, str]
    table: HudiTable
    path: str

    def described(self, settlement: Settlement, rival: Rival) -> str:
        """Return what follows a conflict; empty if it is unknown."""
        error = settlement.error()
        granted = self.grants(error) if isinstance(error, WriteConflictError) else None
        if granted is None:
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
