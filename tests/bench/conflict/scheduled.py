"""The writers of a round as tasks of a real Airflow: what they cost there is compared with ``ours``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from airflow_occ_provider.embedded.airflow import EmbeddedAirflow
from tests.bench.conflict.arms import ARMS
from tests.bench.conflict.events import Event, Job
from tests.bench.conflict.ours import connections
from tests.bench.conflict.place import Place

DAGS = Path(__file__).parent / "dags"
JOBS_VARIABLE = "BENCH_CONFLICT_JOBS"
POOL = "bench"
_PATIENCE_S = 1800
_ENDED = ("success", "failed")


def dag_id(letter: str) -> str:
    """Return the name of the DAG that runs the writers in one way."""
    return f"conflict_{letter}"


@contextmanager
def airflow(folder: Path, place: Place, jobs: Sequence[Job], slots: int) -> Iterator[EmbeddedAirflow]:
    """Run an Airflow with a DAG for each way, and a pool of so many slots."""
    environment = {
        **place.environment,
        **connections(place.hosts),
        JOBS_VARIABLE: json.dumps([asdict(job) for job in jobs]),
    }
    with EmbeddedAirflow(folder, DAGS, environment) as running:
        running.call("POST", "/pools", {"name": POOL, "slots": slots, "include_deferred": False})
        for letter, arm in ARMS.items():
            _wait(lambda letter=letter, arm=arm: not arm.ours or running.has_dag(dag_id(letter)))
        yield running


def run_scheduled(running: EmbeddedAirflow, place: Place, jobs: Sequence[Job], letter: str) -> None:
    """Run the writers in one way; their drivers are recorded in the place."""
    name = dag_id(letter)
    run_id = running.trigger(name, {"table": place.table, "folder": str(place.folder)})
    path = f"/dags/{name}/dagRuns/{run_id}"
    _wait(lambda: running.call("GET", path)["state"] in _ENDED)
    for job in jobs:
        task = running.call("GET", f"{path}/taskInstances/{job.writer}")
        for number in range(1, task["try_number"] + 1):
            is_last = number == task["try_number"]
            _keep(place, job, number, done=is_last and task["state"] == "success")


def _keep(place: Place, job: Job, number: int, *, done: bool) -> None:
    spans = list(place.spans(place.times(job, number)))
    for order, (start_s, end_s) in enumerate(spans, 1):
        committed = done and order == len(spans)
        place.keep(Event(job.writer, number, start_s, end_s, committed))


def _wait(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not in {_PATIENCE_S} s")
        time.sleep(0.5)
