from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from airflow_occ_provider.embedded.metastore import EmbeddedMetastore
from airflow_occ_provider.embedded.process import EmbeddedError
from tests.services.airflow import EmbeddedAirflow
from tests.support.airflow_component import Component
from tests.support.writers import LOCK_BASE_PATH

DAGS = Path(__file__).parent / "dags"
EXAMPLES = Path(__file__).parents[2] / "dags"
_PATIENCE_S = 900


class Run:
    """A DAG run of the test session's Airflow."""

    def __init__(self, airflow, dag_id, conf=None, run_id=None):
        self.airflow, self.dag_id = airflow, dag_id
        self.run_id = run_id or airflow.trigger(dag_id, conf)
        self._path = f"/dags/{dag_id}/dagRuns/{self.run_id}"

    def task(self, task_id, map_index=-1):
        return self.mapped(task_id)[map_index]

    def mapped(self, task_id):
        """Return the instances of a task by map index."""
        tasks = self.airflow.call("GET", f"{self._path}/taskInstances?limit=100")["task_instances"]
        return {task["map_index"]: task for task in tasks if task["task_id"] == task_id}

    def wait_for(self, happened, what):
        deadline = time.monotonic() + _PATIENCE_S
        while not (answer := happened()):
            assert time.monotonic() < deadline, f"{what}: not in {_PATIENCE_S} s"
            time.sleep(0.3)
        return answer

    def wait(self):
        self.wait_for(lambda: self._state() in ("success", "failed"), "end of the run")
        return self

    def _state(self):
        """Return the run's state; ``None`` while a busy SQLite does not show the run."""
        try:
            return self.airflow.call("GET", self._path)["state"]
        except EmbeddedError as error:
            if " 404" not in str(error):
                raise
            return None

    def wait_for_retry(self, number):
        """Wait until try ``number`` of the task ``write`` has failed and a retry has begun or is due."""

        def failed():
            task = self.task("write")
            later, due = task["try_number"] > number, task["state"] == "up_for_retry"
            return later or (due and task["try_number"] == number)

        self.wait_for(failed, f"the retry after try {number}")

    def log(self, task_id, try_number=1, map_index=-1):
        lines = self.airflow.log_lines(self.dag_id, self.run_id, task_id, try_number, map_index)
        return "\n".join(lines)

    def get(self, task_id, what, map_index=-1):
        path = f"{self._path}/taskInstances/{task_id}"
        if map_index >= 0 and not what.startswith("xcom"):
            path = f"{path}/{map_index}"
        return self.airflow.call("GET", f"{path}{'/' if what else ''}{what}")

    def result(self, task_id, map_index=-1):
        return self.get(task_id, f"xcomEntries/return_value?map_index={map_index}&deserialize=false")[
            "value"
        ]

    def patch(self, task_id, body):
        return self.airflow.call("PATCH", f"{self._path}/taskInstances/{task_id}", body)


def add_connections(running, hudi_stack):
    extra = {"base_path": LOCK_BASE_PATH, "session_timeout_ms": 10000}
    running.add_connection(
        "hudi_lock_default",
        conn_type="hudi_zookeeper_lock",
        host=hudi_stack.zookeeper.hosts,
        extra=extra,
    )
    running.add_connection("spark_default", conn_type="spark", host="local[2]")


@pytest.fixture(scope="session")
def airflow(hudi_stack, tmp_path_factory):
    folder = tmp_path_factory.mktemp("airflow")
    dags = shutil.copytree(DAGS, folder / "dags")
    for example in ("example_chain.py", "example_incremental.py"):
        shutil.copy(EXAMPLES / example, dags)
    shutil.copytree(EXAMPLES / "jobs", dags / "jobs")
    settings = {"EXAMPLE_LAKE": str(folder / "lake")}
    with EmbeddedAirflow(folder, dags, hudi_stack.environment, settings) as running:
        add_connections(running, hudi_stack)
        running.add_connection(
            "hudi_lock_quick",
            conn_type="hudi_zookeeper_lock",
            host=hudi_stack.zookeeper.hosts,
            extra={
                "base_path": LOCK_BASE_PATH,
                "lease_ttl_s": 10,
                "claim_ttl_s": 120,
                "connection_timeout_ms": 3000,
            },
        )
        provider = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
        running.add_connection(
            "hudi_lock_files",
            conn_type="hudi_zookeeper_lock",
            host=hudi_stack.zookeeper.hosts,
            extra={"hudi_lock_options": f"hoodie.write.lock.provider={provider}\n"},
        )
        running.add_connection(
            "hudi_lock_unreachable",
            conn_type="hudi_zookeeper_lock",
            host="127.0.0.1:1",
            extra={"connection_timeout_ms": 2000},
        )
        for dag in dags.glob("*.py"):
            deadline = time.monotonic() + 600
            while not running.has_dag(dag.stem):
                assert time.monotonic() < deadline, f"{dag} was not read"
                time.sleep(0.5)
        yield running


@pytest.fixture(scope="session")
def metastore(airflow, tmp_path_factory):
    """A metastore with Hive's own lock timeout, and its connection.

    Between two tasks of a run no process renews its lease: on a busy machine for a minute.
    """
    with EmbeddedMetastore(tmp_path_factory.mktemp("metastore"), lock_timeout_s=300) as running:
        airflow.add_connection(
            "hudi_lock_metastore",
            conn_type="hudi_metastore_lock",
            host=running.uris,
            extra={"heartbeat_interval_ms": 15000},
        )
        yield running


@pytest.fixture
def start(airflow):
    return lambda dag_id, **conf: Run(airflow, dag_id, {key: str(value) for key, value in conf.items()})


@pytest.fixture(scope="session")
def triggerer(airflow, tmp_path_factory):
    """Airflow's triggerer, which a test may kill, and start another one until the session ends."""
    folder = tmp_path_factory.mktemp("triggerer")
    settings = {"AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "8"}
    component = Component(airflow, "triggerer", folder, settings)
    yield component
    component.stop()
