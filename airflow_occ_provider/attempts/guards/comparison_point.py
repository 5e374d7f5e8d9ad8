"""What a running write cannot have seen, by its driver's log and listings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_occ_provider.attempts.guards.table_views import TableView
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.hudi.format.instant import Instant
from airflow_occ_provider.storage.snapshot import Snapshot


@dataclass(slots=True)
class ComparisonPoint:
    """Knows which writes were completed at a write's comparison point.

    The table does not record that point, but the driver's log shows that it is past. What a listing
    that began later does not show as completed is a rival, whenever it completes.

    :param log: of the driver.
    """

    log: DriverLog
    _write: str = field(default="", init=False)
    _past_s: float = field(default=0.0, init=False)
    _done: frozenset[str] | None = field(default=None, init=False)

    def look(self, view: TableView, snapshot: Snapshot, ours: Instant) -> None:
        """Take note of a listing; of a write, the first one after its point counts."""
        if ours.time not in self.log.instants.compared:
            return
        if self._write != ours.time:  # the view may have begun before the log showed it
            self._write, self._past_s, self._done = ours.time, time.monotonic(), None
        elif self._done is None and view.now_s > self._past_s:
            self._done = frozenset(write.time for write in snapshot.timeline.completed_writes())

    def unseen(self, ours: Instant, rivals: Iterable[Instant]) -> frozenset[str]:
        """Return the times of the completed rivals that it has certainly not seen."""
        if self._write != ours.time or self._done is None:
            return frozenset()
        return frozenset(rival.time for rival in rivals) - self._done
