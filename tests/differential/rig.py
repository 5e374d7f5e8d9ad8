"""Runs one pair: latches, not sleeps, make the rival complete in its window."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.differential.observation import Observation
from tests.differential.outcome import read_fate
from tests.differential.pairs import SERVICES, Pair, Window, Write
from tests.differential.tables import Templates
from tests.differential.writer import Point, RigError, Writer
from tests.differential.writes import pair_options, run_service, save, write_rows

_POINTS: tuple[Point, ...] = ("requested", "before_inflight", "inflight")
_WINDOW_ENDS: dict[Window, Point] = {
    "before_comparison": "requested",
    "before_inflight": "before_inflight",
}


class Rig:
    """Runs pairs in one Spark session.

    :param spark: the session.
    :param hudi: the release of Hudi in it.
    :param folder: scratch.
    :param jobs: how many pairs run at a time.
    """

    def __init__(self, spark: Any, hudi: str, folder: Path, jobs: int) -> None:
        self._spark = spark
        self._hudi = hudi
        self._folder = folder
        self._threads = ThreadPoolExecutor(2 * jobs, "writer")
        self._templates = Templates(spark, hudi, folder / "templates")

    def run(self, pair: Pair, keep: Path) -> Observation:
        """Run a pair and return the observation.

        :param keep: the folder that takes the snapshot.
        :raises RigError: if it did not run as planned.
        """
        started = time.monotonic()
        table = self._folder / f"table-{pair.seed}-{pair.index}"
        self._templates.copy(pair.template, table)
        snapshot = _Snapshot(table, keep / "snapshot")
        ours, rival = (self._writer(pair, table, name) for name in ("ours", "rival"))
        try:
            try:
                _run_to_window(pair, ours, rival, snapshot)
            finally:
                errors = ours.finish(), rival.finish()
            if not ours.instants:
                raise RigError("our writer requested no instant") from errors[0]
            return Observation(
                pair=pair,
                snapshot=snapshot.target,
                snapshot_at=snapshot.point,
                snapshot_ms=snapshot.time_ms,
                table=str(table),
                instant=ours.instants[0].partition(".")[0],
                ours=read_fate("ours", pair.ours, errors[0], ours.instants, table),
                rival=read_fate("rival", pair.rival, errors[1], rival.instants, table),
                seconds=round(time.monotonic() - started, 3),
            )
        finally:
            shutil.rmtree(table, ignore_errors=True)

    def _writer(self, pair: Pair, table: Path, name: str) -> Writer:
        write: Write = getattr(pair, name)
        options = pair_options(pair, name)

        def work() -> None:
            if write.operation in SERVICES:
                run_service(self._spark, self._hudi, table, write, options)
            else:
                save(self._spark, table, write.operation, write_rows(write, name), options)

        return Writer(self._spark._jvm, self._threads, str(table), work)


def _run_to_window(pair: Pair, ours: Writer, rival: Writer, snapshot: _Snapshot) -> None:
    """Run ours to its commit lock, and let the rival complete in the window."""
    if pair.window == "before_request":
        rival.finish()
    elif pair.elder != "no":
        rival.run_to(pair.elder)
    for point in _POINTS:
        if not ours.run_to(point):
            return
        if point == _WINDOW_ENDS.get(pair.window):
            rival.finish()
        snapshot.take(point)
    if ours.run_to("commit"):
        if pair.window == "before_commit":
            rival.run_to("commit")
        snapshot.take("commit")
        rival.finish()


@dataclass(slots=True)
class _Snapshot:
    """The last copy of a table's metadata; it predicts a writer that ends before its commit lock."""

    table: Path
    target: Path
    point: str = ""
    time_ms: int = 0

    def take(self, point: str) -> None:
        """Copy the metadata folder, file times included, without the metadata table."""
        shutil.rmtree(self.target, ignore_errors=True)
        without = shutil.ignore_patterns("metadata")
        shutil.copytree(self.table / ".hoodie", self.target / ".hoodie", ignore=without)
        self.point, self.time_ms = point, time.time_ns() // 1_000_000
