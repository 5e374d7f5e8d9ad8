"""Finds the write that a running driver is making in one of its tables."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_occ_provider.attempts.guards.one_table import is_other_table
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.snapshot import Snapshot


def running_write(log: DriverLog, snapshot: Snapshot, ticks: Mapping[str, int]) -> Instant | None:
    """Return the pending write that a driver is making in a table.

    It is the youngest of the driver's writes that the table does not show as completed. A write that
    may be in this table and is not listed yet hides earlier ones. An earlier one counts only while it
    has a heartbeat: a job that goes on after an error has given it up.

    :param ticks: the last ticks of the table's heartbeats.
    :returns: ``None`` if there is none, or if its commit is under way or refused.
    :raises TableUnreadableError: if the storage cannot be read.
    """
    times = log.own_instants
    for time in reversed(times):
        begun_in = log.instants.tables.get(time)
        if begun_in and is_other_table(snapshot.path, begun_in):
            continue
        instant = snapshot.timeline.find(time)
        if instant and _is_no_running_write(instant, snapshot):
            continue
        is_known = instant and (time == times[-1] or time in ticks)
        is_decided = time in log.instants.committing or time in log.instants.conflicts
        return instant if is_known and not is_decided else None
    return None


def _is_no_running_write(instant: Instant, snapshot: Snapshot) -> bool:
    is_pending_write = instant.is_write and not instant.completed
    return not is_pending_write or snapshot.reader.planned(instant) is not None
