"""The prospects of a table's pending writes."""

from __future__ import annotations

import time

from airflow_occ_provider.hudi.conflict.prospects import Prospect, prospects
from airflow_occ_provider.storage.conflicts import (
    DEFAULT_SETUP,
    Setup,
    judged_writes,
    operations_of,
)
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


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
