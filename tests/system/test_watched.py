"""Heartbeats in a real Airflow: sensors that detect a dead writer, and the operators that clean up."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.in_driver import table_service as service_job
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_plans
from tests.support.airflow_runs import unpause_and_parse
from tests.support.rows import count_rows
from tests.support.writers import Writer, wait_for
from tests.system.conftest import Run
from tests.system.dags.watched import INTERVAL_MS, MISSES
from tests.system.rivals import conf, states, wait_for_state

pytestmark = pytest.mark.system
OPTIONS = {
    "hoodie.client.heartbeat.interval_in_ms": INTERVAL_MS,
    "hoodie.client.heartbeat.tolerable.misses": MISSES,
}


@pytest.fixture
def doomed(hudi_stack, airflow, tmp_path):
    """A writer that has requested its instant and has a heartbeat; the table has one older commit."""
    table, gate = airflow.folder / "watched_table", tmp_path / "gate"
    gate.mkdir()
    given = {"stack": hudi_stack, "table": table, "retire": False, "hudi_options": OPTIONS}
    assert Writer(arguments=["--writer", "before"], **given).run().commit
    writer = Writer(arguments=["--writer", "doomed", "--gate", str(gate)], **given).start()
    wait_for("the doomed writer", (gate / "doomed.begun").exists, writer)
    yield writer
    if writer.exit_code is None:
        writer.kill()


def test_a_dead_writer_is_reported_and_cleaned_though_the_triggerer_was_killed(
    airflow, doomed, start, triggerer, tmp_path
):
    table = doomed.table
    (ghost,) = (one.time for one in HudiTable(str(table)).snapshot().timeline.pending_writes())
    paths = {**conf(tmp_path), "table": table, "instant": ghost}
    watch_assets(airflow, "deaths")
    run = start("watched", **paths)
    for task in ("from_trigger", "clean", "own"):
        wait_for_state(run, task, "deferred")
    wait_for_state(run, "from_worker", "running")
    triggerer.kill()
    doomed.kill()
    died = time.monotonic()
    triggerer.start()
    (paths["gate"] / "w.go").touch()
    run.wait()
    print(f"all tasks had ended {time.monotonic() - died:.1f} s after the writer was killed")
    names = ("from_trigger", "from_worker", "clean", "write", "own", "cluster")
    assert states(run, *names) == ["success"] * len(names)
    results = {name: run.result(name) for name in names}
    assert [(one["instant"], one["fate"]) for one in results["from_trigger"]] == [(ghost, "dead")]
    assert (ghost, "dead") in [(one["instant"], one["fate"]) for one in results["from_worker"]]
    assert results["clean"]["rolled_back"] == [ghost]
    assert results["clean"]["left"] == []
    assert [one["fate"] for one in results["own"]] == ["committed"]
    assert results["own"][0]["instant"] == results["write"]["instant"]
    (clustered,) = results["cluster"]["completed"]
    assert results["cluster"]["scheduled"] == [clustered]
    snapshot = HudiTable(str(table)).snapshot()
    assert snapshot.timeline.find(clustered).action == "replacecommit"
    assert snapshot.timeline.find(ghost) is None
    assert snapshot.rollback_of(ghost)
    assert set(count_rows(table).values()) == {2}  # each key in two partitions, by two writers
    assert_reported_by_the_asset(airflow, ghost)


@pytest.mark.nightly
def test_a_retry_waits_for_the_clustering_that_rejected_its_first_try(hudi_stack, start, tmp_path):
    paths = conf(tmp_path)
    given = {"stack": hudi_stack, "table": paths["table"]}
    assert Writer(arguments=["--partition", "1"], **given).run().commit
    serve = {"application": Path(service_job.__file__), **given}
    Writer(arguments=["clustering", "schedule"], **serve).run()
    table = HudiTable(str(paths["table"]))
    (plan,) = pending_plans(table.snapshot(), Service.CLUSTERING, DEFAULT_RULE)
    run = start("queued", **paths)
    wait_for_state(run, "write", "deferred", 2)
    assert "clustering_conflict" in run.log("write", 1)
    assert f"{plan.time}, to which the last attempt lost" in run.log("write", 2)
    Writer(arguments=["clustering", f"run={plan.time}"], **serve).run()
    run.wait()
    task = run.task("write")
    assert (task["state"], task["try_number"]) == ("success", 2), run.log("write", 2)[-3000:]
    assert table.snapshot().timeline.find(plan.time).completed


def watch_assets(airflow, dag_id):
    """Unpause a DAG whose assets are watched, and wait until they are."""
    unpause_and_parse(airflow, dag_id)
    watched = (
        "SELECT 1 FROM asset_watcher JOIN trigger ON trigger.id = trigger_id WHERE triggerer_id > 0"
    )
    with closing(sqlite3.connect(airflow.database, 300)) as database:
        wait_for("the asset's watcher", lambda: database.execute(watched).fetchall())


def assert_reported_by_the_asset(airflow, ghost):
    events, deadline = [], time.monotonic() + 300  # the scheduler starts the run after the event
    while ghost not in str(events) and time.monotonic() < deadline:
        runs = airflow.call("GET", "/dags/deaths/dagRuns")["dag_runs"]
        ids = [one["dag_run_id"] for one in runs]
        events = [Run(airflow, "deaths", run_id=one).wait().result("list_events") for one in ids]
        time.sleep(1)
    assert ghost in str(events)
