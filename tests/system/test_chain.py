"""What commits start in a real Airflow: a reader of what is new, and one run per commit."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest

from airflow_occ_provider.storage.table import HudiTable
from tests.support.airflow_runs import unpause_and_parse
from tests.support.rows import count_rows
from tests.support.writers import wait_for
from tests.system.conftest import Run
from tests.system.rivals import states, wait_for_state

pytestmark = pytest.mark.system
WRITERS = ("write_zurich", "write_amsterdam", "write_berlin")


def test_each_row_is_copied_once_and_each_commit_has_one_run_though_the_triggerer_was_killed(
    airflow, triggerer
):
    lake = airflow.folder / "lake"
    unpause_and_parse(airflow, "committed", "on_commit", "example_chain_reader")
    run = Run(airflow, "example_chain")
    wait_for_state(run, "write_zurich", "success")
    triggerer.kill()
    triggerer.start()
    run.wait()
    assert states(run, *WRITERS) == ["success"] * 3
    commits = HudiTable(str(lake / "chain")).snapshot().timeline.completed_writes()
    assert len(commits) == 3
    written = count_rows(lake / "chain", "uuid")
    copy = lake / "chain_copy"
    wait_for("the copy", lambda: copied(copy).keys() >= written.keys())
    wait_for("the runs of the commits", lambda: len(runs(airflow, "on_commit")) >= 3)
    for dag_id in ("committed", "example_chain_reader"):
        wait_for(dag_id, lambda dag_id=dag_id: {*runs(airflow, dag_id).values()} == {"success"})
    assert copied(copy) == written
    assert set(written.values()) == {1}
    ids = [f"hudi__runs_of_on_commit__{one.time}" for one in commits]
    assert sorted(runs(airflow, "on_commit")) == ids


@pytest.mark.nightly
def test_a_reader_waits_for_a_commit_an_idle_table_and_a_window(airflow, tmp_path):
    table = tmp_path / "cities"
    run = Run(airflow, "example_incremental", {"table": str(table)}).wait()
    tasks = ("write", "committed", "idle", "ready", "read")
    assert states(run, *tasks) == ["success"] * len(tasks)
    instant = run.result("write")["instant"]
    assert [one["instant"] for one in run.result("committed")] == [instant]
    assert run.result("ready")["commits"] == run.result("read")["commits"] == [instant]
    assert copied(tmp_path / "cities_copy") == count_rows(table, "uuid")


def copied(folder):
    """Count each key in what the reader has written."""
    paths = folder.glob("*/*.parquet")
    return Counter(key for path in paths for key in pq.read_table(path)["uuid"].to_pylist())


def runs(airflow, dag_id):
    """Return the states of a DAG's runs."""
    found = airflow.call("GET", f"/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
    return {one["dag_run_id"]: one["state"] for one in found}
