"""All that is pending in a table, judged in one pass, and its prospects."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_occ_provider.hudi.conflict.operation import ConcurrentOperation
from airflow_occ_provider.hudi.conflict.prospects import Prospect, prospects
from airflow_occ_provider.hudi.conflict.verdict import Verdict
from airflow_occ_provider.hudi.format.instant import TABLE_SERVICE_ACTIONS, WRITE_ACTIONS
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, Heartbeat
from airflow_occ_provider.storage.conflicts import (
    DEFAULT_SETUP,
    Setup,
    judged_writes,
    operations_of,
)
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


@dataclass(frozen=True, slots=True)
class Judged:
    """The pending writes and table services of a table.

    :param snapshot: the table; if a heartbeat is missing or has expired, after they were listed.
    :param pending: oldest first.
    :param heartbeats: of these, by requested time.
    :param verdicts: on the writes, by requested time.
    """

    snapshot: Snapshot
    pending: tuple[ConcurrentOperation, ...]
    heartbeats: Mapping[str, Heartbeat]
    verdicts: Mapping[str, Verdict]


def judge_all(
    table: HudiTable, snapshot: Snapshot, now_ms: int, *, with_verdicts: bool = True
) -> Judged:
    """Return all that is pending, with the verdicts on it, in one pass.

    :param with_verdicts: without them two listings are enough, and what writes touch is not read.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    operations = operations_of(table, snapshot, now_ms)
    verdicts = judged_writes(operations) if with_verdicts else {}
    actions = WRITE_ACTIONS | TABLE_SERVICE_ACTIONS
    timeline = operations.snapshot.timeline
    pending = [instant for instant in timeline if not instant.completed and instant.action in actions]
    absent = DEFAULT_RULE.judge(None, now_ms)
    beats = {instant.time: operations.heartbeats.get(instant.time, absent) for instant in pending}
    if with_verdicts:
        return Judged(operations.snapshot, tuple(operations.read(pending)), beats, verdicts)
    maybe_clusterings = [instant for instant in pending if instant.action == "replacecommit"]
    read = dict(zip(maybe_clusterings, operations.read(maybe_clusterings), strict=True))
    writes = operations.outlines(pending) | read
    return Judged(operations.snapshot, tuple(writes.values()), beats, verdicts)


def prospects_of(
    table: HudiTable, snapshot: Snapshot, setup: Setup = DEFAULT_SETUP, *, only: str | None = None
) -> list[Prospect]:
    """Return the prospects of the pending writes, oldest first, or of one.

    :raises TableUnreadableError: if the storage cannot be read.
    """
    now_ms = round(time.time() * 1000)
    operations = operations_of(table, snapshot, now_ms)
    verdicts = judged_writes(operations, setup)
    writes = [
        instant for instant in operations.snapshot.timeline.pending_writes() if instant.time in verdicts
    ]
    judged = [(write, verdicts[write.instant.time]) for write in operations.read(writes)]
    all_prospects = prospects(judged, now_ms)
    return [prospect for prospect in all_prospects if only in (None, prospect.write.instant.time)]
