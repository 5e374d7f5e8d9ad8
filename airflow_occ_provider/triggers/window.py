"""``HudiIncrementalWindowTrigger``: fires when a consumer has commits to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_occ_provider.errors import HistoryUnreadableError, TableUnreadableError
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.hudi.incremental.window import Window
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.storage.incremental import WriteListing, window_after
from airflow_occ_provider.triggers.base import WaitingTrigger
from airflow_occ_provider.triggers.shared_watch import WindowTarget, shared_watch
from airflow_occ_provider.triggers.threads import in_thread


@dataclass(kw_only=True, eq=False, repr=False)
class HudiIncrementalWindowTrigger(WaitingTrigger):
    """A trigger that fires when the window after a checkpoint has commits.

    Event statuses: ``ready``, ``timeout``, ``error``. All triggers of one table share one listing per
    period.

    :param table: base path of the table.
    :param storage_conn_id: Airflow connection of its storage.
    :param since: the checkpoint as JSON values; ``None`` for nothing read yet.
    :param poll_s: seconds between two listings.
    :param deadline_ms: epoch milliseconds at which it times out.
    """

    table: str
    storage_conn_id: str | None = None
    since: dict[str, Any] | None = None
    poll_s: float

    async def event(self) -> dict[str, Any]:
        """Return the window, once it has commits."""
        watched = WindowTarget(canonical_table(self.table), self.storage_conn_id, self.poll_s)
        since = Checkpoint.from_json(self.since) if self.since else None
        writes: WriteListing | None = None
        async with shared_watch(watched) as watch:
            channel = watch.changes
            while True:
                writes = await channel.read_after(writes, self.log_retry)
                try:
                    window = (await in_thread(watched.service, window_after, since, writes)).window
                except HistoryUnreadableError:
                    raise
                except TableUnreadableError as error:
                    self.log_retry(error)
                    channel = watch.listings
                    continue
                if window.commits:
                    return {"status": "ready", "window": window_facts(self.table, window)}
                self.log.info("%s", why_empty(window))
                channel = watch.changes


def window_facts(table: str, window: Window) -> dict[str, Any]:
    """Return what is said of a window, as ``HudiIncrementalReadOperator`` returns it."""
    commits = [commit.time for commit in window.commits]
    return {"table": table, "commits": commits, "start": window.start, "end": window.end}


def why_empty(window: Window) -> str:
    """Return why there is nothing to read."""
    if held := window.held_up_by:
        return f"The window ends before the pending {', '.join(held)}."
    return f"No commit yet after {window.start or 'the table was made'}."
