"""Writes on a Celery worker that is killed, and on one that has no task while a driver runs in YARN."""

from __future__ import annotations

import pytest

from airflow_occ_provider.submitters.yarn_place import COMMON_TAG, ResourceManager
from tests.demo import yarn_connection
from tests.faults.rig import SETTINGS
from tests.services.celery import CeleryAirflow
from tests.support.airflow_runs import JOB, ONCE, driver_of, session_of, signatures
from tests.support.rows import count_rows
from tests.system.conftest import DAGS, Run, add_connections

pytestmark = [pytest.mark.system, pytest.mark.yarn, pytest.mark.nightly]


@pytest.fixture(scope="module")
def celery(hudi_stack, embedded_yarn, tmp_path_factory):
    environment = embedded_yarn.environment(hudi_stack.environment)
    with CeleryAirflow(tmp_path_factory.mktemp("celery"), DAGS, environment, SETTINGS) as running:
        add_connections(running, hudi_stack)
        client = {"deploy-mode": "client"}  # YARN's environment has the other one
        running.add_connection("spark_default", conn_type="spark", host="local[2]", extra=client)
        waiting = Run(running, "hasty", run_id="any")
        waiting.wait_for(lambda: running.has_dag("hasty"), "the DAG")
        yield running


class Write(Run):
    """A write whose driver is held at a step."""

    def __init__(self, airflow, folder, step):
        self.table, self.gate, self.step = folder / step / "t", folder / step / "gate", step
        self.gate.mkdir(parents=True)
        (self.gate / f"{step}.hold").touch()
        paths = {"job": str(JOB), "table": str(self.table), "gate": str(self.gate)}
        super().__init__(airflow, "hasty", paths)

    def reach(self):
        self.wait_for((self.gate / f"{self.step}.reached").exists, self.step)

    def release(self):
        (self.gate / f"{self.step}.hold").unlink()


def test_a_killed_worker_costs_a_try_and_doubles_no_row(celery, tmp_path):
    uncommitted, committed = writes = [Write(celery, tmp_path, step) for step in ("rows", "after")]
    for one in writes:
        one.reach()
    sessions = [driver_of(one.table).pid for one in writes]
    celery.kill_worker()
    for one, session in zip(writes, sessions, strict=True):
        one.wait_for(lambda session=session: not session_of(session), "the driver's end")
        one.release()
    celery.start_worker()
    for one in writes:
        task = one.wait().task("write")
        assert (task["state"], task["try_number"]) == ("success", 2), one.log("write", 2)[-3000:]
        assert count_rows(one.table) == ONCE
    assert [one.try_number for one in signatures(uncommitted.table)] == [2]
    assert [one.try_number for one in signatures(committed.table)] == [1]


def test_no_slot_is_used_while_a_driver_runs_in_yarn(celery, embedded_yarn, tmp_path):
    celery.add_connection("spark_default", **yarn_connection(embedded_yarn))
    run = Write(celery, tmp_path, "rows")
    run.reach()
    run.wait_for(lambda: run.task("write")["state"] == "deferred", "the deferral")
    pool = celery.call("GET", "/pools/default_pool")
    applications = ResourceManager([embedded_yarn.resource_manager]).applications(COMMON_TAG)
    (driver,) = [one for one in applications if not one.is_over]
    assert driver.state == "RUNNING"
    used = {name: pool[f"{name}_slots"] for name in ("occupied", "running", "queued", "deferred")}
    assert used == {"occupied": 0, "running": 0, "queued": 0, "deferred": 1}
    run.release()
    assert run.wait().task("write")["state"] == "success", run.log("write")[-3000:]
    assert count_rows(run.table) == ONCE
