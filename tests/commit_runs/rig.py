"""A real Airflow on PostgreSQL that starts runs while real writers commit."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.commit_runs.plan import Fault
from tests.commit_runs.writers import Writers
from tests.services.airflow import EmbeddedAirflow
from tests.services.postgres import Postgres
from tests.support.airflow_component import Component
from tests.support.observed import until

DAGS = Path(__file__).parent / "dags"
STARTED = ("on_commit", "on_batch")
"""The DAGs whose runs are started."""
_NAME = "airflow"


class Rig:
    """The DAGs of a running Airflow, and its triggerer.

    :param airflow: it.
    :param folder: of the logs of triggerers that are started.
    """

    def __init__(self, airflow: EmbeddedAirflow, folder: Path) -> None:
        self._airflow = airflow
        self.triggerer = Component(airflow, "triggerer", folder)

    def begin(self) -> None:
        """Unpause the DAGs, and wait until the table's asset is watched."""
        until(lambda: self._airflow.has_dag("start_runs"), "the DAGs")
        for dag_id in ("start_runs", "on_event", *STARTED):
            self._airflow.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
        file = self._airflow.call("GET", "/dags/start_runs")["file_token"]
        self._airflow.call("PUT", f"/parseDagFile/{file}")

    def apply(self, fault: Fault) -> None:
        """End the triggerer and, after a pause, start another one."""
        last = self._last_triggerer()
        end = self.triggerer.kill if fault.kind == "killed" else self.triggerer.terminate
        end()
        time.sleep(fault.pause_s)
        self.triggerer.start()
        until(lambda: self._last_triggerer() > last, "the next triggerer")

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG."""
        return list(self._airflow.listed(f"/dags/{dag_id}/dagRuns", "dag_runs"))

    def instants(self, dag_id: str) -> Counter[str]:
        """Return how many runs of a DAG each commit has."""
        return Counter(one["instant"] for run in self.runs(dag_id) for one in run["conf"]["commits"])

    def reported(self) -> Counter[str]:
        """Return in how many asset events each commit is."""
        events = self._airflow.listed("/assets/events", "asset_events", "timestamp")
        payloads = (one["extra"].get("payload", {}) for one in events)
        return Counter(one["instant"] for payload in payloads for one in payload.get("commits", ()))

    def wait_until_quiet(self, commits: int) -> None:
        """Wait until that many commits have runs, and every run has ended."""
        for dag_id in STARTED:
            until(
                lambda dag_id=dag_id: len(self.instants(dag_id)) >= commits,
                f"runs of {dag_id}",
                pause_s=1,
            )
        for dag_id in ("start_runs", *STARTED):
            until(
                lambda dag_id=dag_id: not self._live(dag_id),
                f"the ends of the runs of {dag_id}",
                pause_s=1,
            )

    def _last_triggerer(self) -> int:
        jobs = self._airflow.call("GET", "/jobs?job_type=TriggererJob&limit=1&order_by=-id")["jobs"]
        return int(jobs[0]["id"]) if jobs else 0

    def _live(self, dag_id: str) -> bool:
        return any(run["state"] in ("queued", "running") for run in self.runs(dag_id))


@contextmanager
def running(folder: Path, table: Path) -> Iterator[Rig]:
    """Run Airflow for the time of a ``with`` block."""
    with Postgres(_NAME, _NAME) as database:
        settings = {
            "COMMIT_RUNS_TABLE": str(table),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database.address,
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8",
        }
        with EmbeddedAirflow(folder, DAGS, os.environ, settings) as airflow:
            rig = Rig(airflow, folder / "triggerers")
            try:
                yield rig
            finally:
                rig.triggerer.stop()


def go_through(rig: Rig, writers: Writers, faults: list[Fault]) -> None:
    """Let the writers write, and end the triggerer at each of the faults."""
    writers.make_first()
    for dag_id in STARTED:  # else what is archived before their first look would have no run
        until(lambda dag_id=dag_id: rig.runs(dag_id), f"a run of {dag_id}")
    writers.start()
    for fault in faults:
        until(
            lambda fault=fault: writers.made >= fault.commits or writers.have_ended,
            f"{fault.commits} commits",
        )
        rig.apply(fault)
        print(f"after {writers.made} commits the triggerer was {fault.kind}", flush=True)
    until(lambda: writers.have_ended, "the writers")
