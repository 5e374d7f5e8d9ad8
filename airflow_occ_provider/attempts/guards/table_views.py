"""Views of a table: the heartbeats of its writers, and then its timeline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from airflow_occ_provider.attempts.shared_call import SharedCall
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable


class TableView(NamedTuple):
    """One view of a table.

    :param ticks: epoch milliseconds of each heartbeat's last tick.
    :param snapshot: of the timeline, read after the heartbeats; ``None`` if there is no table.
    :param now_ms: epoch milliseconds just before the heartbeats were listed.
    :param now_s: seconds of a monotonic clock just after.
    """

    ticks: Mapping[str, int]
    snapshot: Snapshot | None
    now_ms: int
    now_s: float


class TableViews:
    """Reads a table again and again.

    :param period_s: seconds for which a view is shared; by default each is a new one.
    """

    def __init__(self, table: HudiTable, period_s: float = 0.0) -> None:
        self._table = table
        self._snapshot: Snapshot | None = None
        self._shared = SharedCall(self._read, period_s)

    def current(self) -> TableView:
        """Return a view that is not older than the period.

        :raises TableUnreadableError: if the table cannot be read.
        """
        return self._shared.get()

    def newest(self) -> TableView:
        """Return a view that begins now.

        :raises TableUnreadableError: if the table cannot be read.
        """
        return self._read()

    def _read(self) -> TableView:
        """Read the heartbeats, then the timeline: a write completed in between is not dead."""
        now_ms = round(time.time() * 1000)
        snapshot = self._snapshot or self._table.snapshot(missing_ok=True)
        ticks = snapshot.heartbeats()
        now_s = time.monotonic()
        if not snapshot.config.exists:
            return TableView(ticks, None, now_ms, now_s)
        self._snapshot = self._table.snapshot(snapshot)
        return TableView(ticks, self._snapshot, now_ms, now_s)
