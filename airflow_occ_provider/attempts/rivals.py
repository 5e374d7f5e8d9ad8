"""The rivals of an attempt: the winner of its conflict, and those still pending."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_occ_provider.attempts.failure import UNSIGNED
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant, State
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.storage import writers
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.storage.writers import pending_table_services


@dataclass(frozen=True, slots=True)
class Rival:
    """The winner of a conflict, as far as the table shows it.

    :param writer: its DAG and task, a description of what is no task, or empty.
    """

    writer: tuple[str, ...] | str = ""
    partitions: tuple[str, ...] = ()
    file_groups: int = 0

    def explained(self, settlement: Settlement, seconds: float, next_try: str) -> Settlement:
        """Return a failed attempt's settlement with an explanation for people.

        :param next_try: what happens next to the task; empty if it is not known.
        """
        failure = replace(
            settlement.described(),
            writer=self.writer,
            partitions=self.partitions,
            file_groups=self.file_groups,
            seconds=seconds,
            next_try=next_try,
        )
        return replace(settlement, failure=failure)


def find_rival(table: HudiTable, instant: str | None, rival: str | None) -> Rival:
    """Return what the table shows of a conflict; nothing if it cannot be read.

    :param instant: requested time of the loser.
    :param rival: requested time of the winner.
    """
    if rival is None:
        return Rival()
    try:
        snapshot = table.snapshot(missing_ok=True)
        winner = snapshot.timeline.find(rival)
        if winner is None:
            return Rival()
        loser = snapshot.timeline.find(instant) if instant else None
        both = _touched(snapshot, loser) & _touched(snapshot, winner)
        writer = _writer(snapshot, winner)
    except TableUnreadableError:
        return Rival()
    return Rival(writer, tuple(sorted({partition for partition, _ in both})), len(both))


def _touched(snapshot: Snapshot, instant: Instant | None) -> frozenset[FileGroupId]:
    if instant is None:
        return frozenset()
    operation = snapshot.operation(instant)
    return operation.file_groups | operation.replaced


def _writer(snapshot: Snapshot, winner: Instant) -> tuple[str, ...] | str:
    metadata = snapshot.reader.commit(winner) if winner.completed else None
    if winner.action in TABLE_SERVICE_ACTIONS or (metadata and metadata.is_table_service):
        return "a table service"
    if metadata is None:
        return "a running writer"
    signature = Signature.from_extra(metadata.extra)
    if signature is None:
        return UNSIGNED
    return signature.task_run.task_path


def pending_rivals(
    table: HudiTable,
    settlement: Settlement,
    partitions: Collection[str],
    own_times: Collection[str],
    rule: HeartbeatRule,
    *,
    clusterings: bool = True,
) -> tuple[str, ...]:
    """Return the pending instants that would refuse a lost attempt again.

    The rival that Hudi named, if it is still pending. If Hudi named none: the pending clusterings and
    the writers with a live heartbeat that may touch the same partitions. Not a writer that is only
    requested: it has no markers yet. After a clustering refused the attempt, only the clusterings;
    after an early conflict none of them, since early detection ignores plans.

    :param partitions: what the attempt was about to write; empty for the whole table.
    :param own_times: requested times of the task run's own instants.
    :param clusterings: whether a pending clustering may refuse the attempt.
    """
    refused = settlement.outcome is Outcome.CLUSTERING_CONFLICT
    clusterings = clusterings and settlement.outcome is not Outcome.EARLY_CONFLICT
    try:
        snapshot = table.snapshot(missing_ok=True)
        operations = pending_clusterings(snapshot, rule) if clusterings else []
        operations += [] if refused else living_writers(table, snapshot, rule)
    except TableUnreadableError:
        return ()  # the next try runs at once, as if none were pending
    rivals = [operation for operation in operations if operation.instant.time not in own_times]
    if settlement.rival:
        return tuple(rival.instant.time for rival in rivals if rival.instant.time == settlement.rival)
    return tuple(rival.instant.time for rival in rivals if _may_touch(rival, partitions))


def still_pending(table: HudiTable, instants: Sequence[str], rule: HeartbeatRule) -> tuple[str, ...]:
    """Return the instants that are pending and whose heartbeat has not expired."""
    observation = WriterWatch(table, rule).observe()
    return tuple(time for time in instants if observation.writer(time).fate.beating)


def pending_clusterings(snapshot: Snapshot, rule: HeartbeatRule) -> list[ConcurrentOperation]:
    """Return the pending clusterings, whether a process runs them or not.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    services = pending_table_services(snapshot, rule)
    return [
        service.operation
        for service in services
        if service.operation.operation_type in Service.CLUSTERING.kinds
    ]


def living_writers(
    table: HudiTable, snapshot: Snapshot, rule: HeartbeatRule
) -> list[ConcurrentOperation]:
    """Return the inflight writes whose heartbeat has not expired.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    living = (writer.operation for writer in writers.living_writers(table, snapshot, rule))
    return [operation for operation in living if operation.instant.state is State.INFLIGHT]


def busy_writers(
    table: HudiTable,
    partitions: Collection[str] | None,
    rule: HeartbeatRule,
    previous: Snapshot | None = None,
) -> tuple[str, ...]:
    """Return the requested times of live writes that may touch some partitions.

    A write that is only requested may touch any.

    :param partitions: partition paths, each with everything below it; ``None`` for the whole table.
    :param previous: an earlier snapshot, which saves requests.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    snapshot = table.snapshot(previous, missing_ok=True)
    live = (writer.operation for writer in writers.living_writers(table, snapshot, rule))
    return tuple(
        operation.instant.time
        for operation in live
        if operation.instant.state is State.REQUESTED or _may_touch(operation, partitions or ())
    )


def _may_touch(operation: ConcurrentOperation, partitions: Collection[str]) -> bool:
    if not partitions or operation.may_touch_more or operation.overwrites_table:
        return True
    files = {partition for partition, _ in operation.file_groups}
    return meet(files | operation.adds_to | operation.overwrites, partitions)


def meet(some: Iterable[str], others: Collection[str]) -> bool:
    """Return whether a path of some is, or is above or below, a path of others."""
    slashed = tuple(f"{other}/" for other in others)
    return any(
        f"{path}/".startswith(other) or other.startswith(f"{path}/")
        for path in some
        for other in slashed
    )
