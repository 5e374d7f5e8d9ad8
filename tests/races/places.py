"""Races of MERGE whose drivers run where a user's do: ``python -m tests.races.places --place yarn``.

Two tasks read a counter and write it back plus one, with ``isolation="serializable"``. The reader pauses
between its read and its MERGE until its rival has committed, or is queued behind it. The controls have
``"snapshot"``, and upsert, since a MERGE is refused there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from airflow.sdk import DAG

from airflow_occ_provider.embedded.bundle import hudi_release
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import blockers
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.via import ARGUMENTS, RUNNER
from tests.conftest import SMALL_TABLES
from tests.demo import yarn_connection
from tests.services.yarn import EmbeddedYarn
from tests.support.observed import until
from tests.support.results import Result, add_result
from tests.support.rows import current_files
from tests.support.session_site import SITE
from tests.support.via_runs import Run
from tests.support.writers import NO_METADATA_TABLE, QUIET

JOB = Path(__file__).parents[1] / "jobs" / "counted_merge.py"
PLACES = ("local", "yarn", "via")
_TRIES = 6
_WRITERS = 2
_MASTER = "local[1]"
_BY_BASH = f"spark-submit --master '{_MASTER}' --driver-memory 1g {RUNNER} {ARGUMENTS}"


def main() -> int:
    arguments = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="races_", ignore_cleanup_errors=True) as scratch,
        ExitStack() as services,
        ThreadPoolExecutor(arguments.lanes) as pool,
    ):
        folder = Path(scratch)
        stack = services.enter_context(EmbeddedStack(folder / "stack"))
        place = started_place(arguments.place, folder, stack, services)
        started = time.monotonic()
        races = [
            *((seed, True) for seed in range(arguments.seed, arguments.seed + arguments.runs)),
            *((seed, False) for seed in range(arguments.seed, arguments.seed + arguments.controls)),
        ]
        leases = services.enter_context(closing(lock_hook("lock").leases()))
        lanes = [
            Lane(folder / "lake" / f"t{number}", place, leases) for number in range(arguments.lanes)
        ]
        running = [
            pool.submit(lane.run, races[number :: arguments.lanes]) for number, lane in enumerate(lanes)
        ]
        of_lanes = [lane.result() for lane in running]
    wrong = [is_guarded for of_lane in of_lanes for is_guarded in of_lane]
    counts = {"controls": arguments.controls, "controls wrong": wrong.count(False)}
    rig = f"races merge on {arguments.place}"
    add_result(Result(rig, hudi_release(), arguments.seed, arguments.runs, wrong.count(True), counts))
    print(
        f"merge on {arguments.place}: {arguments.runs} serializable runs, {wrong.count(True)} wrong; "
        f"{arguments.controls} controls, {wrong.count(False)} wrong; {time.monotonic() - started:.0f} s",
        flush=True,
    )
    # Controls that never go wrong prove nothing.
    return 1 if True in wrong or (arguments.controls and False not in wrong) else 0


def started_place(
    place: str, folder: Path, stack: EmbeddedStack, services: ExitStack
) -> Mapping[str, Any]:
    """Start what a place needs, and return the operator's arguments for it."""
    os.environ["AIRFLOW_CONN_LOCK"] = json.dumps(stack.lock_connection)
    os.environ["AIRFLOW__HUDI_OCC__SITE_ID"] = SITE
    os.environ.update(stack.environment)
    connection: Mapping[str, Any] = {"conn_type": "spark", "host": _MASTER}
    if place == "yarn":
        yarn = services.enter_context(EmbeddedYarn(folder / "yarn"))
        os.environ.update(yarn.environment(stack.environment))
        connection = yarn_connection(yarn)
    conf = Path(os.environ["SPARK_CONF_DIR"])  # YARN has its own
    (conf / "log4j2.properties").write_text(QUIET)
    with (conf / "spark-defaults.conf").open("a") as defaults:
        defaults.write(SMALL_TABLES)
    if place == "via":
        operator = "airflow.providers.standard.operators.bash.BashOperator"
        return {"via": operator, "via_kwargs": {"bash_command": _BY_BASH, "append_env": True}}
    os.environ["AIRFLOW_CONN_SPARK_OF_RACES"] = json.dumps(connection)
    return {"conn_id": "spark_of_races", "driver_memory": "1g"}


@dataclass(frozen=True)
class Lane:
    """Races for one table, one after the other.

    :param place: the operator's arguments for the place of its drivers.
    :param leases: the queue, to be looked at.
    """

    table: Path
    place: Mapping[str, Any]
    leases: Queue

    def run(self, races: Sequence[tuple[int, bool]]) -> list[bool]:
        """Run races; return for each wrong one whether it was guarded."""
        self._task(f"create_{self.table.name}", is_guarded=True).start().committed()
        return [is_guarded for seed, is_guarded in races if self._race(seed, is_guarded=is_guarded)]

    def _task(self, name: str, *more: str, is_guarded: bool) -> Run:
        """Return the run of a task that increments the counter.

        :param more: arguments of the job.
        """
        task = HudiWriteOperator(
            task_id=name,
            dag=DAG("races", schedule=None),
            application=str(JOB),
            application_args=[str(self.table), *more, *([] if is_guarded else ["--upsert"])],
            table=str(self.table),
            lock_conn_id="lock",
            isolation="serializable" if is_guarded else "snapshot",
            hudi_options={**NO_METADATA_TABLE, "hoodie.clean.automatic": "false"},
            deferrable=False,
            **self.place,
        )
        return Run(task)

    def _race(self, seed: int, *, is_guarded: bool) -> bool:
        """Run two tasks at once; return whether the counter is not two more than before."""
        rng = random.Random(f"merge {seed}")
        before = _value(self.table)
        name = f"{'guarded' if is_guarded else 'control'}_{seed}"
        gate = self.table.parent / name
        reader = self._task(f"{name}_reader", "--gate", str(gate), is_guarded=is_guarded)
        rival = self._task(f"{name}_rival", is_guarded=is_guarded)
        tasks = [reader, rival]
        rng.shuffle(tasks)
        started = time.monotonic()
        for task in tasks:
            task.start()
            time.sleep(rng.uniform(0, 1.0))
        reader.reached(gate.with_suffix(".read"))
        until(lambda: not rival.thread.is_alive() or self._is_blocked(rival), f"the rival of {name}")
        gate.with_suffix(".go").touch()
        errors = [_last_error(task) for task in tasks]
        gained = _value(self.table) - before
        print(
            f"{name}: {tasks[0].task.task_id} first, counted {gained} of {_WRITERS}"
            f" in {time.monotonic() - started:.0f} s, tries {[task.number for task in tasks]}"
            f"{''.join(f', {error}' for error in errors if error)}",
            flush=True,
        )
        return gained != _WRITERS or any(errors)

    def _is_blocked(self, task: Run) -> bool:
        """Return whether a task is queued behind another one."""
        queue = self.leases.requests()
        return any(
            task.task.task_id in queued.request.owner.path and blockers(queued, queue)
            for queued in queue
        )


def _last_error(task: Run) -> str:
    """Try a task again until it has committed; return the error of its last try."""
    while task.wait().error and task.number < _TRIES:
        task.start()
    return str(task.error)[:1000] if task.error else ""


def _value(table: Path) -> int:
    (file,) = current_files(table)
    (value,) = pq.read_table(file, columns=["v"]).column("v").to_pylist()
    return int(value)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.races.places", description=__doc__)
    parser.add_argument("--place", choices=PLACES, default=PLACES[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--controls", type=int, default=5, help="runs without isolation")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--lanes", type=int, default=2, help="tables that are raced for at once")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
