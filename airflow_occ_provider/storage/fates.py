"""What became of an instant, the history included."""

from __future__ import annotations

from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.storage.snapshot import Snapshot


def ended_as(snapshot: Snapshot, time: str) -> Fate | None:
    """Return what became of a write that is no longer pending.

    An archived commit is no longer in the active timeline, as little as one that was rolled back. So the
    history is asked before a rollback counts, and before files are taken for uncommitted.

    :param time: its requested time.
    :returns: ``GONE`` if neither a commit nor a rollback of it is there; ``None`` if it is pending, or
        if the history has to be read and cannot.
    """
    instant = snapshot.timeline.find(time)
    if instant is not None:
        return Fate.COMMITTED if instant.completed else None
    try:
        archived = snapshot.history() if snapshot.has_history() else ()
    except TableUnreadableError:
        return None
    if any(write.time == time and write.is_write for write in archived):
        return Fate.COMMITTED
    return Fate.ROLLED_BACK if snapshot.rollback_of(time) else Fate.GONE
