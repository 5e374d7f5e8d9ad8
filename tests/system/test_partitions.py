"""Partition keys in a real Airflow: the scope of a run, and the events of what was written."""

from __future__ import annotations

import pytest

from tests.system.conftest import Run
from tests.system.rivals import JOB, commits

pytestmark = pytest.mark.system


@pytest.fixture
def write(airflow):
    def run(dag_id, **more):
        run_id = airflow.trigger(dag_id, {"job": str(JOB)}, **more)
        run = Run(airflow, dag_id, run_id=run_id).wait()
        assert run.task("write")["state"] == "success", run.log("write")[-4000:]
        return run.log("write")

    return run


def test_the_key_of_a_run_is_its_scope_and_what_was_written_has_an_event(airflow, write):
    table = f"{airflow.environment['EXAMPLE_LAKE']}/partitioned"
    log = write("partitioned", partition_key="2026-11-28")
    assert "'2026-11-28' is not taken for the scope: there is no table yet." in log
    assert f"Holds {table} (shared, the whole table)" in log

    log = write("partitioned", partition_key="2026-11-29")
    assert "The scope is 2026-11-29, by the run's partition key." in log
    assert f"Holds {table} (exclusive, 2026-11-29)" in log
    assert "outside its scope" not in log

    airflow.call("PATCH", "/dags/of_partition", {"is_paused": False})
    write("by_partition")
    assert [commit.partitions for commit in commits(table)] == [
        ("2026-11-28",),
        ("2026-11-29",),
        ("late",),
    ]
    of_event = Run(airflow, "of_partition", run_id="~")
    path = "/dags/of_partition/dagRuns"
    (started,) = of_event.wait_for(lambda: airflow.call("GET", path)["dag_runs"], "a run of the event")
    of_event = Run(airflow, "of_partition", run_id=started["dag_run_id"]).wait()
    assert of_event.result("key_of_run") == started["partition_key"] == "late"
