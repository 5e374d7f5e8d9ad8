"""How soon early stop ends a doomed driver: ``python -m tests.early_stop.delay --place yarn``.

Each driver sleeps after it has written its files. Once it has run for longer than the minute in which
it looks at its folder each second, a rival commits the same file group at a random moment. The delay is
the time from the rival's completed instant until the attempt has seen its driver's end and has settled
it. In YARN a trigger follows the driver, elsewhere the worker does. The time that Airflow takes to
resume a task after its trigger is not part of it.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.hudi.writer.options import writer_options
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.differential.session import start_spark
from tests.races.places import PLACES, started_place
from tests.support.observed import until
from tests.support.via_runs import Run
from tests.support.writers import NO_METADATA_TABLE, inflight, stack_lock_options

JOB = Path(__file__).parents[1] / "jobs" / "contended_write.py"
MOST_S = 20.0
_HUDI = "1.2.0"
_SLEEP_S = 300
_EARLIEST_S, _LATEST_S = 50.0, 65.0
_NAME = "t"
_OPTIONS = {
    "hoodie.table.name": _NAME,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    **NO_METADATA_TABLE,
}


@dataclass(frozen=True)
class Rig:
    """What all races share.

    :param folder: of the tables.
    :param spark: the session of the rivals, which writes without Airflow.
    :param lock: the options of Hudi's lock.
    :param place: the operator's arguments for the place of the drivers.
    :param is_deferrable: whether a trigger follows them.
    """

    folder: Path
    spark: Any
    lock: Mapping[str, str]
    place: Mapping[str, Any]
    is_deferrable: bool

    def commit(self, table: Path) -> None:
        """Update the one row of a table, or make the table."""
        rows = self.spark.createDataFrame(
            [("first", "first", time.time_ns())], "id string, p string, ts long"
        )
        options = {**writer_options(self.lock, {}), **_OPTIONS}
        rows.write.format("hudi").options(**options).mode("append").save(str(table))

    def delay_s(self, template: Path, seed: int) -> float:
        """Run one race; return the delay.

        :raises AssertionError: if the driver was not ended.
        """
        table = self.folder / str(seed) / _NAME
        shutil.copytree(template, table)
        run = self._doomed(table, seed).start()
        until(lambda: _has_profile(table) or not run.thread.is_alive(), f"the write of {seed}")
        time.sleep(random.Random(f"delay {seed}").uniform(_EARLIEST_S, _LATEST_S))
        self.commit(table)
        readable_s = max(file.stat().st_mtime for file in _timeline(table).glob("*_*.commit"))
        run.thread.join()
        delay_s = time.time() - readable_s
        if not isinstance(run.error, WriteConflictError) or delay_s >= _SLEEP_S - _LATEST_S:
            raise AssertionError(f"{seed}: {delay_s:.1f} s, {run.error or run.result}")
        print(f"{seed}: {delay_s:.1f} s", flush=True)
        return delay_s

    def _doomed(self, table: Path, seed: int) -> Run:
        task = HudiWriteOperator(
            task_id=f"doomed_{seed}",
            dag=DAG("delays", schedule=None),
            application=str(JOB),
            application_args=[str(table), "doomed", str(_SLEEP_S)],
            table=str(table),
            lock_conn_id="lock",
            early_stop=EarlyStop.ACT,
            deferrable=self.is_deferrable,
            **self.place,
        )
        return Run(task)


def _timeline(table: Path) -> Path:
    return table / ".hoodie" / "timeline"


def _has_profile(table: Path) -> bool:
    return any((_timeline(table) / f"{time}.inflight").stat().st_size for time in inflight(table))


def main() -> int:
    arguments = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="delays_", ignore_cleanup_errors=True) as scratch,
        ExitStack() as services,
    ):
        folder = Path(scratch)
        spark = start_spark(_HUDI, folder / "rival")  # before the drivers' environment is set
        services.callback(spark.stop)
        stack = services.enter_context(EmbeddedStack(folder / "stack"))
        place = started_place(arguments.place, folder, stack, services)
        template = folder / "template" / _NAME
        lock = stack_lock_options(stack, str(template))
        rig = Rig(folder / "lake", spark, lock, place, is_deferrable=arguments.place == "yarn")
        rig.commit(template)
        seeds = range(arguments.seed, arguments.seed + arguments.runs)
        with ThreadPoolExecutor(arguments.lanes) as pool:
            delays_s = sorted(pool.map(partial(rig.delay_s, template), seeds))
    p95_s = delays_s[math.ceil(0.95 * len(delays_s)) - 1]
    print(
        f"early stop on {arguments.place}: {len(delays_s)} drivers, all ended; median "
        f"{statistics.median(delays_s):.1f} s, p95 {p95_s:.1f} s, longest {delays_s[-1]:.1f} s"
    )
    return 1 if p95_s > MOST_S else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.early_stop.delay", description=__doc__)
    parser.add_argument("--place", choices=PLACES, default=PLACES[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--lanes", type=int, default=4, help="drivers at once")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
