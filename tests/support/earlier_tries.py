"""Tries of a task run that came before the one under test."""

from __future__ import annotations

import logging

from airflow_occ_provider.attempts.earlier_tries import EarlierTries
from airflow_occ_provider.attempts.record import AttemptRecord, TableBefore
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.task.run import open_journal
from tests.support.hand_made_tables import T0
from tests.support.rollbacks import LATE, ROLLBACK, roll_back
from tests.support.task_state import Instance, Store

RULE = HeartbeatRule(60_000, 2)
LOG = logging.getLogger(__name__)


class Tries:
    """One try after an earlier one, of a table made by hand."""

    def __init__(self, folder, *, since=T0, number=2, max_tries=14, **attempt):
        self.cleaned = []
        self.run = open_journal({"task_state_store": Store(), "ti": Instance(number, max_tries)})
        self.run.begin("d", TableBefore(frozenset(filter(None, [since]))))
        self.identity = self.run.record.identity
        self.path = str(folder.parent)
        self.run.keep(AttemptRecord(1, 14, self.identity, self.path, 0, **attempt))
        self.folder, self.tries = folder, self._tries(self.clean)

    def _tries(self, clean):
        return EarlierTries(self.run, HudiTable, RULE, clean=clean, log=LOG)

    def clean(self, table):
        """Do to the hand-made timeline what Hudi's rollback does."""
        self.cleaned.append(table)
        pending = [path.name[:17] for path in (self.folder / "timeline").glob("*.requested")]
        for time in [time for time in pending if "rollback" not in time]:
            for path in (self.folder / "timeline").glob(f"{time}*"):
                path.unlink()
            roll_back(self.folder, time, f"{ROLLBACK}_{LATE}.rollback")

    def commit(self, digest="d"):
        return self.tries.commit(self.path, digest)

    @property
    def attempt(self):
        return self.run.record.attempts[-1]
