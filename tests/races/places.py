"""Races of MERGE whose drivers run where a user's do: ``python -m tests.races.places --place yarn``.

Two tasks read a counter and write it back plus one, with ``isolation="serializable"``; the controls have
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
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from airflow.sdk import DAG

from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.embedded.yarn import EmbeddedYarn
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.demo import LOCAL, VIAS, yarn_connection
from tests.rows import current_files
from tests.via_runs import Run
from tests.writers import NO_METADATA_TABLE

JOB = Path(__file__).parents[1] / "jobs" / "counted_merge.py"
PLACES = ("local", "yarn", "via")
_TRIES = 6
_WRITERS = 2
_LONGEST_PAUSE_S = 20.0


def main() -> int:
    arguments = _arguments()
    with (
        tempfile.TemporaryDirectory(prefix="races_", ignore_cleanup_errors=True) as scratch,
        ExitStack() as services,
    ):
        folder = Path(scratch)
        stack = services.enter_context(EmbeddedStack(folder / "stack"))
        started = time.monotonic()
        with_place = _started_place(arguments.place, folder, stack, services)
        table = folder / "lake" / "t"
        _task("create", table, 0.0, with_place, is_guarded=True).start().committed()
        wrong = {
            is_guarded: sum(
                _race(table, seed, with_place, is_guarded=is_guarded)
                for seed in range(arguments.seed, arguments.seed + count)
            )
            for is_guarded, count in ((True, arguments.runs), (False, arguments.controls))
        }
    print(
        f"merge on {arguments.place}: {arguments.runs} serializable runs, {wrong[True]} wrong; "
        f"{arguments.controls} controls, {wrong[False]} wrong; {time.monotonic() - started:.0f} s",
        flush=True,
    )
    # Controls that never go wrong prove nothing.
    return 1 if wrong[True] or (arguments.controls and not wrong[False]) else 0


def _started_place(
    place: str, folder: Path, stack: EmbeddedStack, services: ExitStack
) -> Mapping[str, Any]:
    """Start what a place needs, and return the operator's arguments for it."""
    os.environ["AIRFLOW_CONN_LOCK"] = json.dumps(stack.lock_connection)
    os.environ["AIRFLOW__HUDI_OCC__SITE_ID"] = "races"
    os.environ.update(stack.environment)
    if place == "via":
        operator, kwargs = VIAS["bash"]
        return {"via": operator, "via_kwargs": {**kwargs, "append_env": True}}
    connection = LOCAL
    if place == "yarn":
        yarn = services.enter_context(EmbeddedYarn(folder / "yarn"))
        os.environ.update(yarn.environment(stack.environment))
        connection = yarn_connection(yarn)
    os.environ["AIRFLOW_CONN_SPARK_OF_RACES"] = json.dumps(connection)
    return {"conn_id": "spark_of_races", "driver_memory": "1g"}


def _task(name: str, table: Path, pause_s: float, place: Mapping[str, Any], *, is_guarded: bool) -> Run:
    """Return the run of a task that increments the counter."""
    with DAG("races", schedule=None):
        task = HudiWriteOperator(
            task_id=name,
            application=str(JOB),
            application_args=[
                *(str(table), "--pause", str(pause_s)),
                *([] if is_guarded else ["--upsert"]),
            ],
            table=str(table),
            lock_conn_id="lock",
            isolation="serializable" if is_guarded else "snapshot",
            hudi_options={**NO_METADATA_TABLE, "hoodie.clean.automatic": "false"},
            deferrable=False,
            **place,
        )
    return Run(task)


def _race(table: Path, seed: int, place: Mapping[str, Any], *, is_guarded: bool) -> bool:
    """Run two tasks at once; return whether the counter is not two more than before."""
    rng = random.Random(f"merge {seed}")
    before = _value(table)
    kind = "guarded" if is_guarded else "control"
    # The pause of the first one lets the second commit between its read and its MERGE.
    pauses_s = (rng.uniform(0.5, 1.0) * _LONGEST_PAUSE_S, 0.0)
    tasks = [
        _task(f"{kind}_{seed}_{number}", table, pause_s, place, is_guarded=is_guarded)
        for number, pause_s in enumerate(pauses_s)
    ]
    rng.shuffle(tasks)
    started = time.monotonic()
    for task in tasks:
        task.start()
        time.sleep(rng.uniform(0, 1.0))
    errors = [_last_error(task) for task in tasks]
    gained = _value(table) - before
    print(
        f"{kind} {seed}: counted {gained} of {_WRITERS} in {time.monotonic() - started:.0f} s, "
        f"tries {[task.number for task in tasks]}{''.join(f', {error}' for error in errors if error)}",
        flush=True,
    )
    return gained != _WRITERS or any(errors)


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
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
