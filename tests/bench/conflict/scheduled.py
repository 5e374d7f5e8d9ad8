"""The writers of a round as tasks of a real Airflow: what they cost there is compared with ``ours``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.bench.conflict.arms import ARMS
from tests.bench.conflict.events import Event, Job
from tests.bench.conflict.ours import connections
from tests.bench.conflict.place import Place
from tests.services.airflow import EmbeddedAirflow
from tests.support.observed import until

DAGS = Path(__file__).parent / "dags"
JOBS_VARIABLE = "BENCH_CONFLICT_JOBS"
POOL = "bench"


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
    path = {"PATH": environment["PATH"]}  # else the real spark-submit comes before the timed one
    with EmbeddedAirflow(folder, DAGS, environment, path) as running:
        running.call("POST", "/pools", {"name": POOL, "slots": slots, "include_deferred": False})
        names = [dag_id(letter) for letter, arm in ARMS.items() if arm.ours]
        until(lambda: all(map(running.has_dag, names)), "the DAGs")
        yield running


def run_scheduled(running: EmbeddedAirflow, place: Place, jobs: Sequence[Job], letter: str) -> None:
    """Run the writers in one way; their drivers are recorded in the place."""
    name = dag_id(letter)
    run_id = running.trigger(name, {"table": place.table, "folder": str(place.folder)})
    running.end_of(name, run_id)
    for job in jobs:
        task = running.call("GET", f"/dags/{name}/dagRuns/{run_id}/taskInstances/{job.writer}")
        for number in range(1, task["try_number"] + 1):
            is_last = number == task["try_number"]
            _keep(place, job, number, done=is_last and task["state"] == "success")


def _keep(place: Place, job: Job, number: int, *, done: bool) -> None:
    spans = list(place.spans(place.times(job, number)))
    for order, (start_s, end_s) in enumerate(spans, 1):
        committed = done and order == len(spans)
        place.keep(Event(job.writer, number, start_s, end_s, committed))
