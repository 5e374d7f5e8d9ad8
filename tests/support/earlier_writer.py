"""Two writers of one table, of which one began earlier."""

from __future__ import annotations

import logging
import os
import time as clock
from pathlib import Path

from airflow_occ_provider.attempts.guards.early_stop import EarlierWriter, EarlyStop, EarlyStopGuard
from airflow_occ_provider.attempts.guards.table_guards import TableGuards, TableViews
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack

TABLES = Path(__file__).parents[1] / "golden" / "tables"
LOGGER = logging.getLogger("task")


class Pair:
    """Two pending writes of one file group, each with its profile and a heartbeat."""

    def __init__(self, folder):
        self.path, self.now_s = unpack(TABLES / "1.2.0" / "unchecked.zip", folder), clock.time()
        self.table = HudiTable(str(self.path))
        *_, earlier, later = self.table.snapshot().timeline.completed_writes()
        self.earlier, self.later = earlier.time, later.time
        self.timeline = self.path / self.table.config().timeline_folder
        self.done = {instant.time: instant.file_name for instant in (earlier, later)}
        for name in self.done.values():
            (self.timeline / name).rename(self.path / name)
        (self.path / ".hoodie" / ".heartbeat").mkdir(exist_ok=True)
        self.planned(self.earlier, 60)
        self.planned(self.later, 30)
        for time in self.done:
            self.beats(time)

    def planned(self, time, seconds_ago):
        """Let the profile of a write be so old."""
        at_s = self.now_s - seconds_ago
        os.utime(self.timeline / f"{time}.inflight", (at_s, at_s))

    def beats(self, time):
        (self.path / ".hoodie" / ".heartbeat" / time).touch()

    def dies(self, time):
        os.utime(self.path / ".hoodie" / ".heartbeat" / time, (1, 1))

    def copy(self, later):
        """Add a pending write with the profile of the earlier one, requested so many ms later."""
        time = f"{int(self.earlier) + later}"
        for kind in ("commit.requested", "inflight"):
            source = self.timeline / f"{self.earlier}.{kind}"
            (self.timeline / f"{time}.{kind}").write_bytes(source.read_bytes())
        self.beats(time)
        return time

    def instant(self, time):
        return self.table.snapshot().timeline.find(time)

    def completes(self, time):
        (self.path / self.done[time]).rename(self.timeline / self.done[time]).touch()

    def writer(self, time):
        """Return the log of a driver that has requested a write."""
        log = DriverLog()
        log.take(f"INFO ActiveTimelineV2: Creating a new instant [==>{time}__commit__REQUESTED]")
        return log

    def guard(self, lease, instant="", mode=EarlyStop.ACT, *, may_retry=True):
        log = self.writer(instant or self.later)
        earlier = EarlierWriter(lease, DEFAULT_RULE, None, may_retry)
        guard = EarlyStopGuard(log, mode, None, LOGGER, earlier)
        return guard, TableGuards(TableViews(self.table), log, [guard], LOGGER)

    def stop(self, lease, instant=""):
        guard, looking = self.guard(lease, instant)
        looking.check()
        return guard.stop
