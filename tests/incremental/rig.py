"""Runs real writers, table services and a consumer of one table in one Spark session."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.storage.incremental import IncrementalRead, incremental_read
from airflow_occ_provider.storage.table import HudiTable
from tests.differential.tables import Templates
from tests.differential.writer import Writer
from tests.differential.writes import batch_rows, run_service, save, table_options
from tests.early_stop.race import POINTS, Turn
from tests.incremental.plan import Run

_KEYS = 3
_LAST_LOOKS = 40

Row = tuple[str, str]
"""A key, and the requested time of the commit that wrote the row."""


@dataclass(slots=True)
class Found:
    """What a run came to.

    :param current: the rows of the table after all writes.
    :param read: how often the consumer has read each row.
    :param naive: of the current rows, those that a checkpoint by the youngest instant would have read.
    :param windows: how many windows were read incrementally, and for which reasons others were scanned.
    :param errors: of writes that Hudi refused.
    """

    current: set[Row] = field(default_factory=set)
    read: Counter[Row] = field(default_factory=Counter)
    naive: set[Row] = field(default_factory=set)
    windows: Counter[str] = field(default_factory=Counter)
    errors: int = 0

    @property
    def lost(self) -> list[Row]:
        """The current rows that were not read."""
        return sorted(self.current - self.read.keys())

    @property
    def doubled(self) -> list[Row]:
        """The rows that were read twice."""
        return sorted(row for row, count in self.read.items() if count > 1)


class Rig:
    """Runs in one Spark session.

    :param spark: the session.
    :param hudi: the release of Hudi in it.
    :param folder: scratch.
    """

    def __init__(self, spark: Any, hudi: str, folder: Path) -> None:
        self._spark, self._hudi, self._folder = spark, hudi, folder
        self._templates = Templates(spark, hudi, folder / "templates")
        self._threads = ThreadPoolExecutor(32, "writer")

    def run(self, run: Run) -> Found:
        """Run the writers to their ends, and the consumer until nothing is left to read."""
        path = self._folder / f"table-{run.seed}-{run.index}"
        self._templates.copy(run.template, path)
        found, over = Found(), threading.Event()
        try:
            with ThreadPoolExecutor(len(run.writers) + 2, "part") as parts:
                consumer = parts.submit(self._consume, run, path, over, found)
                changing = [parts.submit(self._write, run, path, turns) for turns in run.writers]
                changing.append(parts.submit(self._serve, run, path))
                try:
                    found.errors = sum(one.result() for one in changing)
                finally:
                    over.set()
                naive = consumer.result()
            found.current = set(self._rows(path, {"hoodie.datasource.query.type": "snapshot"}))
            found.naive = {row for row in found.current if row[1] in naive}
        finally:
            shutil.rmtree(path, ignore_errors=True)
        return found

    def _write(self, run: Run, path: Path, turns: tuple[Turn, ...]) -> int:
        """Make the writes of one writer; return how many failed."""
        failed = 0
        for turn in turns:
            time.sleep(turn.starts_s)
            options = {**table_options(run.template), "hoodie.parquet.small.file.limit": "0"}
            write, rows = turn.write, _rows_of(turn)

            def work(write=write, rows=rows, options=options) -> None:
                save(self._spark, path, write.operation, rows, options)

            writer = Writer(self._spark._jvm, self._threads, str(path), work)
            for point, hold_s in zip(POINTS, turn.holds_s, strict=True):
                if not writer.run_to(point):
                    break
                time.sleep(hold_s)
            if writer.finish() is not None:
                failed += 1
                for instant in writer.instants:  # as an ended attempt of the provider does
                    heartbeat = path / ".hoodie" / ".heartbeat" / instant.partition(".")[0]
                    heartbeat.unlink(missing_ok=True)
        return failed

    def _serve(self, run: Run, path: Path) -> int:
        for pause_s, service in run.services:
            time.sleep(pause_s)
            with suppress(Exception):  # nothing to plan, or a writer was in its way
                run_service(self._spark, self._hudi, path, service, table_options(run.template))
        return 0

    def _consume(self, run: Run, path: Path, over: threading.Event, found: Found) -> set[str]:
        """Read windows until the writers have ended and nothing is left; return the naive instants."""
        table, since, naive, mark = HudiTable(str(path)), None, set[str](), ""
        last, pauses = 0, cycle(run.looks_s)
        while last < _LAST_LOOKS:
            has_ended = over.is_set()
            done = {one.time for one in table.snapshot().timeline.completed_writes()}
            naive |= {time_ for time_ in done if time_ > mark}
            mark = max([mark, *done])
            since, had_commits = self._read(table, path, since, run.most, found)
            if has_ended and not had_commits:
                return naive
            last += has_ended
            time.sleep(next(pauses))
        raise RuntimeError("the windows do not come to an end")

    def _read(
        self, table: HudiTable, path: Path, since: Checkpoint | None, most: int, found: Found
    ) -> tuple[Checkpoint | None, bool]:
        read = incremental_read(table, since, most=most)
        if not read.window.commits:
            return since, False
        found.windows[_kind(read)] += 1
        release = self._hudi.rpartition(".")[0]
        found.read.update(self._rows(path, read.options(release), read.predicate))
        return read.window.checkpoint, True

    def _rows(self, path: Path, options: dict[str, str], predicate: str = "true") -> list[Row]:
        frame = self._spark.read.format("hudi").options(**options).load(str(path))
        found = frame.where(predicate).select("k", "_hoodie_commit_time").collect()
        return [(row[0], row[1]) for row in found]


def _rows_of(turn: Turn) -> list[tuple[str, str, int]]:
    new = [(f"{p}-{turn.name}-{n}", p, 7) for p in turn.write.inserts for n in range(_KEYS)]
    return [*batch_rows(turn.write.groups, 7), *new]


def _kind(read: IncrementalRead) -> str:
    return " ".join(word for word in read.scan.split() if not word.isdigit()) or "incremental"
