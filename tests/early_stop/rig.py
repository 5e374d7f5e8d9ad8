"""Runs one race: real writers in one Spark session, each watched by its own guard, which observes.

One that would have given way to an earlier write is held until that has ended: it must not commit first.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from airflow_occ_provider.attempts.guards import early_stop
from airflow_occ_provider.attempts.guards.early_stop import EarlierWriter, EarlyStop, EarlyStopGuard
from airflow_occ_provider.attempts.guards.table_guards import TableGuards, TableViews
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Stop
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.storage.table import HudiTable
from tests.differential.observation import Fate
from tests.differential.outcome import read_fate
from tests.differential.tables import Templates
from tests.differential.writer import RigError, Writer
from tests.differential.writes import save, signature, table_options, write_rows
from tests.early_stop.race import POINTS, Race, Turn
from tests.support.memory_store import MemoryStore

_LOG = logging.getLogger(__name__)
_TTL_MS = 600_000
_PATIENCE_S = 300.0
_COMPARED = (
    "The HoodieWriteClient is not configured to auto & async clean. Async clean service will not start."
)
_PERIOD_S = 0.2  # between two looks; a race takes seconds, a job hours


@dataclass(frozen=True, slots=True)
class Course:
    """What became of one writer.

    :param choice: that early stop would have let an earlier write go on in its place, if it would have.
    :param loss: that it found the write to be lost, if it did.
    """

    name: str
    choice: Stop | None
    loss: Stop | None
    fate: Fate

    @property
    def instant(self) -> str:
        """The requested time of its write; empty if it requested none."""
        return self.fate.instants[-1].partition(".")[0] if self.fate.instants else ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of one writer, in the queue of its race."""

    queue: Queue
    ticket: Ticket
    table: str

    def announce(self, instant: str) -> None:
        """Tell which write runs under the lease."""
        self.queue.announce(self.ticket, (instant,))

    def announced(self) -> Mapping[str, Owner]:
        """Return the owners of the writes that the others have announced."""
        return self.queue.announced(self.ticket, self.table)


class Rig:
    """Runs races in one Spark session.

    :param spark: the session.
    :param hudi: the release of Hudi in it.
    :param folder: scratch.
    """

    def __init__(self, spark: Any, hudi: str, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._templates = Templates(spark, hudi, folder / "templates")
        self._threads = ThreadPoolExecutor(32, "writer")
        early_stop._PERIOD_S = _PERIOD_S

    def run(self, race: Race) -> list[Course]:
        """Run a race to the end of all its writers.

        :raises RigError: if one did not run as planned.
        """
        table = self._folder / f"table-{race.seed}-{race.index}"
        self._templates.copy(race.template, table)
        course = partial(self._course, race, table, Queue(MemoryStore()), set())
        try:
            with ThreadPoolExecutor(len(race.turns), "course") as courses:
                running = [courses.submit(course, turn) for turn in race.turns]
            return [one.result() for one in running]
        finally:
            shutil.rmtree(table, ignore_errors=True)

    def _course(self, race: Race, table: Path, queue: Queue, over: set[str], turn: Turn) -> Course:
        time.sleep(turn.starts_s)
        options, write = _options(race, turn), turn.write

        def work() -> None:
            save(self._spark, table, write.operation, write_rows(write, turn.name), options)

        writer = Writer(self._spark._jvm, self._threads, str(table), work)
        watch = Watch.of(turn, table, queue, over)
        try:
            with watch.guards:
                for point, hold_s in zip(POINTS, turn.holds_s, strict=True):
                    if not writer.run_to(point):
                        break
                    watch.hold(writer.instants, hold_s, is_compared=point != "requested")
                error = writer.finish()
        finally:
            writer.finish()
            over.update(instant.partition(".")[0] for instant in writer.instants)
        fate = read_fate(turn.name, write, error, writer.instants, table)
        return Course(turn.name, watch.choice, watch.loss, fate)


@dataclass(slots=True)
class Watch:
    """The guards of one writer, and what they have found.

    :param over: requested times of the writes of the race that have ended, as far as they have.
    """

    over: set[str]
    log: DriverLog
    guard: EarlyStopGuard
    guards: TableGuards
    _told: int = 0
    _is_compared: bool = False

    @classmethod
    def of(cls, turn: Turn, table: Path, queue: Queue, over: set[str]) -> Watch:
        """Return the guards of a writer, with its lease."""
        opened, log = HudiTable(str(table)), DriverLog()
        scope, owner = Scope.of(opened.path, None, Mode.SHARED), Owner(("dag", "run", turn.name))
        ticket = queue.request(Request(turn.name, owner, (scope,), _TTL_MS))
        earlier = EarlierWriter(Lease(queue, ticket, opened.path), DEFAULT_RULE, None)
        guard = EarlyStopGuard(log, EarlyStop.OBSERVE, None, _LOG, earlier)
        return cls(over, log, guard, TableGuards(TableViews(opened), log, [guard], _LOG))

    @property
    def choice(self) -> Stop | None:
        """The choice that another write goes on in its place, if there was one."""
        return self.guard.choice.stop if self.guard.choice else None

    @property
    def loss(self) -> Stop | None:
        """The finding that the write is lost, if there was one."""
        return self.guard.doomed.stop if self.guard.doomed else None

    def _reports(self, message: str) -> None:
        """Let its driver's runner report a record of Hudi."""
        fact = {"fact": "hudi", "logger": "A", "message": message, "thread": "main"}
        self.log.take(fact)

    def hold(self, instants: tuple[str, ...], hold_s: float, *, is_compared: bool) -> None:
        """Hold the writer at a point: for some time, or until the write to which it gives way has ended.

        :param instants: what its driver's log has told.
        :param is_compared: whether it has told that the comparison point of the write is past.
        """
        for instant in instants[self._told :]:
            time_, _, action = instant.partition(".")
            self._reports(f"Creating a new instant [==>{time_}__{action}__REQUESTED]")
        self._told = len(instants)
        if is_compared and not self._is_compared:
            self._reports(_COMPARED)
            self._is_compared = True
        time.sleep(hold_s)
        choice, deadline_s = self.choice, time.monotonic() + _PATIENCE_S
        while choice and choice.rival not in self.over:
            if time.monotonic() > deadline_s:
                raise RigError(f"the earlier write {choice.rival} does not end")
            time.sleep(0.05)


def _options(race: Race, turn: Turn) -> dict[str, str]:
    return {
        **table_options(race.template),
        "hoodie.parquet.small.file.limit": str(104857600 if race.small_files else 0),
        "_differential_writer": signature(turn.name),
    }
