"""Audits an attempt: its scope, its lease, and the use of Hudi's own lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.commit import MOST_PARTITIONS, Commit
from airflow_occ_provider.attempts.lock_connection import LockConnection
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.errors import (
    LeaseLostError,
    MisconfigurationError,
    OccError,
    TableUnreadableError,
)
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable

NO_PLANS: Mapping[str, Sequence[str]] = {}
_WHERE = ("hoodie.write.lock.zookeeper.url", "hoodie.write.lock.zookeeper.base_path")
_LOCK_KEY = "hoodie.write.lock.zookeeper.lock_key"


def planned_partitions(
    table: HudiTable, instant: str | None, plans: Mapping[str, Sequence[str]] = NO_PLANS
) -> tuple[str, ...]:
    """Return the partitions of a write's workload profile; empty if unknown.

    Also empty for more than a lease can name: the next attempt then takes the whole table.

    :param instant: requested time of the write.
    :param plans: what was known of writes while they ran. Another writer may have rolled one back since.
    """
    plan = tuple(plans.get(instant, ())) if instant else ()
    try:
        return plan or (planned_in(table.snapshot(missing_ok=True), instant) if instant else ())
    except TableUnreadableError:
        return ()


def planned_in(snapshot: Snapshot, instant: str) -> tuple[str, ...]:
    """Return the partitions of a pending write's workload profile; empty if unknown.

    :raises TableUnreadableError: if the profile cannot be read.
    """
    write = snapshot.timeline.find(instant)
    if write is None or write.completed:
        return ()
    operation = snapshot.operation(write)
    if operation.may_touch_more or operation.overwrites_table:
        return ()
    touched = {partition for partition, _ in operation.file_groups}
    planned = touched | operation.adds_to | operation.overwrites
    return tuple(sorted(planned)) if len(planned) <= MOST_PARTITIONS else ()


def audit_scope(commit: Commit, admitted: Admitted, log: Any) -> None:
    """Report committed partitions outside the requested scope.

    :raises MisconfigurationError: if only the lease kept other writers away.
    """
    outside = admitted.outside(commit.metadata.partitions)
    if not outside:
        return
    message = (
        f"commit {commit.instant.time} wrote {', '.join(outside[:5])}"
        f"{f' and {len(outside) - 5} more' if len(outside) > 5 else ''}, outside its scope"
    )
    if admitted.is_fenced:
        log.warning("%s: writers of those partitions were not kept apart from it.", message)
        return
    raise MisconfigurationError(
        f"{message}, where nothing else kept others away",
        outcome=Outcome.MISCONFIGURATION,
        remedy="name every partition that the job writes in scope, or leave scope out; look for "
        "duplicates and lost updates in those partitions",
        committed=True,
    )


def audit_lease(commit: Commit, admitted: Admitted) -> None:
    """Refuse a commit that landed after its lease was lost, without other protection.

    :raises MisconfigurationError: then.
    """
    try:
        admitted.refuse_if_lost()
    except LeaseLostError as lost:
        raise MisconfigurationError(
            f"commit {commit.instant.time} landed, but {lost.message}",
            outcome=Outcome.MISCONFIGURATION,
            remedy="look for duplicates and lost updates of writers that committed meanwhile",
            committed=True,
        ) from lost


@dataclass(frozen=True, slots=True)
class CommitLockAudit:
    """Checks that Hudi's own lock in ZooKeeper was taken while an attempt ran."""

    lock: LockConnection
    options: Mapping[str, str]
    table: HudiTable

    def refuse_unlocked(self, commit: Commit, before: int | None) -> None:
        """Refuse a commit that was made without the lock.

        :param before: the lock's count before the attempt.
        :raises MisconfigurationError: if no process took it since the audit began.
        """
        after = self.count()
        if after is None or after > (before or 0):
            return
        raise MisconfigurationError(
            f"commit {commit.instant.time} was made without Hudi's lock, which was not taken "
            "while the job ran",
            outcome=Outcome.MISCONFIGURATION,
            remedy="remove lock settings from the job's own write options, so that it locks where its "
            "neighbours do",
            committed=True,
        )

    def count(self) -> int | None:
        """Return how often the lock was acquired or released; ``None`` if unknown."""
        key = self.options.get(_LOCK_KEY) or self.table.config().name
        if not key or not self._is_in_view:
            return None
        try:
            lock = self.lock.commit_lock(self.table.path, key)
            if lock is None:
                return None
            with closing(lock):
                return lock.times_requested()
        except OccError:
            return None

    @property
    def _is_in_view(self) -> bool:
        ours = self.lock.options(self.table.path)
        return self.options.get(LOCK_PROVIDER) == ZOOKEEPER_LOCK_PROVIDER and all(
            self.options.get(key) == ours.get(key) for key in _WHERE
        )
