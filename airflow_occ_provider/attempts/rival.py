"""The winner of a conflict and the file groups that both wrote, by the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_occ_provider.attempts.failure import UNSIGNED
from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.format.file_group import FileGroupId
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, Instant
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class Rival:
    """The winner of a conflict, as far as the table shows it.

    :param writer: its DAG and task, a description of what is no task, or empty.
    :param partitions: where both wrote.
    :param file_groups: how many file groups both wrote.
    """

    writer: tuple[str, str] | str = ""
    partitions: tuple[str, ...] = ()
    file_groups: int = 0

    def explained(self, settlement: Settlement, seconds: float, next_try: str) -> Settlement:
        """Return a failed attempt's settlement with an explanation for people.

        :param seconds: for how long its driver ran.
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


def _writer(snapshot: Snapshot, winner: Instant) -> tuple[str, str] | str:
    metadata = snapshot.reader.commit(winner) if winner.completed else None
    if winner.action in TABLE_SERVICE_ACTIONS or (metadata and metadata.is_table_service):
        return "a table service"
    if metadata is None:
        return "a running writer"
    signature = Signature.from_extra(metadata.extra)
    if signature is None:
        return UNSIGNED
    mapped = f"[{signature.map_index}]" if signature.map_index >= 0 else ""
    return signature.dag_id, f"{signature.task_id}{mapped}"
