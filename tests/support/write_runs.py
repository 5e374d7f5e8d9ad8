"""Runs of a writing task without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from airflow_occ_provider.attempts import write
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.support.hand_made_tables import T1
from tests.support.rollbacks import LATE, ROLLBACK, roll_back

IN_PROCESS = {LOCK_PROVIDER: "org.apache.hudi.client.transaction.lock.InProcessLockProvider"}
INTERVAL = {"hoodie.client.heartbeat.interval_in_ms": "60000"}


@dataclass(frozen=True)
class AttemptOf(write.Write):
    """A write whose attempt is that of an operator of a test."""

    attempt_of: Callable = None

    def attempt(self, preparation, admitted, standby=None):
        return self.attempt_of(self.run, admitted)


class Write(HudiWriteOperator):
    """In the place of Spark: attempts that fail as told, or do nothing."""

    options = INTERVAL
    ran = 0
    cleaned: tuple[str, ...] = ()

    def _protected_run(self, context):
        run = super()._protected_run(context)
        run.look_up = lambda: None
        run.prepare = partial(self.prepare, run)
        run.known_options = lambda _: dict(self.options)
        run.run_clean = self.run_clean
        return run

    def prepare(self, run, order_token=""):
        self.hudi_defaults = dict(self.options)
        return Preparation(None, None, self.options, "", run.table.snapshot(missing_ok=True))

    def _write(self, context):
        write = super()._write(context)
        return AttemptOf(write.run, write.event, self._attempt)

    def _attempt(self, run, admitted):
        self.ran += 1

    def run_clean(self, preparation, table, admitted):
        """In the place of the lazy clean: what its rollback does to the files."""
        self.cleaned += (table,)
        for path in Path(self.table, ".hoodie", "timeline").glob(f"{T1}*"):
            path.unlink()
        roll_back(Path(self.table, ".hoodie"), T1, f"{ROLLBACK}_{LATE}.rollback")
        return 0, None
