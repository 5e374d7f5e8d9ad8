"""A writer that its guard may stop, and its rival."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop, EarlyStopGuard
from airflow_occ_provider.attempts.guards.table_guards import TableGuards, TableViews
from airflow_occ_provider.attempts.identity import UnwrittenSignature
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.settle import settle
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack

TABLES = Path(__file__).parents[1] / "golden" / "tables"
LOGGER = logging.getLogger("task")


class Race:
    """Two writes of one file group: the earlier one is inflight, and the later one has completed."""

    def __init__(self, folder, release="1.2.0"):
        self.path = unpack(TABLES / release / "unchecked.zip", folder)
        self.table = HudiTable(str(self.path))
        done = self.table.snapshot().timeline.completed_writes()
        *_, ours, rival = done
        self.ours, self.rival = ours.time, rival.time
        self.timeline = self.path / self.table.config().timeline_folder
        self.commit = self.path / ours.file_name
        (self.timeline / ours.file_name).rename(self.commit)
        self.winner = self.timeline / rival.file_name
        self.profile = self.timeline / f"{self.ours}.inflight"
        self.log = DriverLog()
        self.requests(self.ours)

    def requests(self, time, action="commit"):
        self.log.take(f"INFO ActiveTimelineV2: Creating a new instant [==>{time}__{action}__REQUESTED]")

    def begins(self, time, table):
        made = f"{table}/.hoodie/timeline/{time}.inflight"
        self.log.take(f"INFO ActiveTimelineV2: Create new file for toInstant ?{made}")

    def beats(self, time):
        (self.path / ".hoodie" / ".heartbeat").mkdir(exist_ok=True)
        (self.path / ".hoodie" / ".heartbeat" / time).touch()

    def lands(self):
        """Let Hudi commit the write after all."""
        self.log.take("x INFO TransactionUtils: Successfully resolved conflicts, if any")
        self.commit.rename(self.timeline / self.commit.name)

    def settled(self, exit_code, stop):
        signature = UnwrittenSignature("i", "d", "r", "t")
        return settle(self.table, signature, self.log, exit_code, stop=stop)

    def stop(self):
        guard = self.guard()
        self.look(guard)
        return guard.doomed and guard.doomed.stop

    def instant(self, time):
        return self.table.snapshot().timeline.find(time)

    def guard(self, mode=EarlyStop.ACT):
        return EarlyStopGuard(self.log, mode, None, LOGGER)

    def guards(self, *guards):
        return TableGuards(TableViews(self.table), self.log, guards, LOGGER)

    def look(self, guard):
        self.guards(guard).check()


def before_the_profile(race):
    """Let the rival have completed before the profile was written."""
    later_s = race.winner.stat().st_mtime + 1
    os.utime(race.profile, (later_s, later_s))
