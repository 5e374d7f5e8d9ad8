"""The rivals outside the queue: foreign writers and pending clusterings."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.instant import State
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.storage.writers import pending_table_services, pending_writers


def pending_rivals(
    table: HudiTable,
    settlement: Settlement,
    partitions: Collection[str],
    own: Collection[str],
    rule: HeartbeatRule,
    *,
    clusterings: bool = True,
) -> tuple[str, ...]:
    """Return the pending instants that would refuse a lost attempt again.

    The rival that Hudi named, if it is still pending. If Hudi named none: the pending clusterings and
    the writers with a live heartbeat that may touch the same partitions. Not a writer that is only
    requested: it has no markers yet. After a clustering refused the attempt, only the clusterings;
    after an early conflict none of them, since early detection ignores plans.

    :param table: the table.
    :param settlement: of the attempt.
    :param partitions: what the attempt was about to write; empty for the whole table.
    :param own: requested times of the task run's own instants.
    :param rule: how heartbeats are judged.
    :param clusterings: whether a pending clustering may refuse the attempt.
    """
    refused = settlement.outcome is Outcome.CLUSTERING_CONFLICT
    clusterings = clusterings and settlement.outcome is not Outcome.EARLY_CONFLICT
    try:
        snapshot = table.snapshot(missing_ok=True)
        found = _clusterings(snapshot, rule) if clusterings else []
        found += [] if refused else _writers(table, snapshot, rule)
    except TableUnreadableError:
        return ()  # the next try runs at once, as if none were pending
    others = [one for one in found if one.instant.time not in own]
    if settlement.rival:
        return tuple(one.instant.time for one in others if one.instant.time == settlement.rival)
    return tuple(one.instant.time for one in others if _may_touch(one, partitions))


def still_pending(table: HudiTable, instants: Sequence[str], rule: HeartbeatRule) -> tuple[str, ...]:
    """Return the instants that are pending and whose heartbeat has not expired.

    :param table: the table.
    :param instants: requested times.
    :param rule: how heartbeats are judged.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    observation = WriterWatch(table, rule).observe()
    return tuple(time for time in instants if observation.writer(time).fate.beating)


def _clusterings(snapshot: Snapshot, rule: HeartbeatRule) -> list[ConcurrentOperation]:
    services = pending_table_services(snapshot, rule)
    return [
        one.operation for one in services if one.operation.operation_type in Service.CLUSTERING.kinds
    ]


def _writers(table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule) -> list[ConcurrentOperation]:
    pending = pending_writers(table, snapshot, rule)
    living = (one.operation for one in pending if one.live)
    return [one for one in living if one.instant.state is State.INFLIGHT]


def _may_touch(operation: ConcurrentOperation, partitions: Collection[str]) -> bool:
    if not partitions or operation.may_touch_more or operation.overwrites_table:
        return True
    files = {partition for partition, _ in operation.file_groups}
    return _meet(files | operation.adds_to | operation.overwrites, partitions)


def _meet(some: Iterable[str], others: Collection[str]) -> bool:
    """Whether a path of some is, or is above or below, a path of others."""
    slashed = tuple(f"{other}/" for other in others)
    return any(
        f"{path}/".startswith(other) or other.startswith(f"{path}/")
        for path in some
        for other in slashed
    )
