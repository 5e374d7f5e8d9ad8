"""What commits start in a real Airflow: a reader of what is new, and one run per commit."""

from __future__ import annotations

from collections import Counter

import pyarrow.parquet as pq
import pytest

from airflow_occ_provider.storage.table import HudiTable
from tests.rows import count_rows
from tests.system.conftest import Run
from tests.system.rivals import states, wait_for_state
from tests.system.test_watched import unpause_and_parse
from tests.writers import wait_for

pytestmark = pytest.mark.system
WRITERS = ("write_zurich", "write_amsterdam", "write_berlin")


def test_each_row_is_copied_once_and_each_commit_has_one_run_though_the_triggerer_was_killed(
    airflow, triggerer
):
    lake = airflow.folder / "lake"
    for dag_id in ("committed", "on_commit", "example_chain_reader"):
        unpause_and_parse(airflow, dag_id)
    run = Run(airflow, "example_chain")
    wait_for_state(run, "write_zurich", "success")
    triggerer.kill()
    triggerer.start()
    run.wait()
    assert states(run, *WRITERS) == ["success"] * 3
    commits = HudiTable(str(lake / "chain")).snapshot().timeline.completed_writes()
    assert len(commits) == 3
    written = count_rows(lake / "chain", "uuid")
    wait_for("the copy", lambda: copied(lake).keys() >= written.keys())
    wait_for("the runs of the commits", lambda: len(runs(airflow, "on_commit")) >= 3)
    for dag_id in ("committed", "example_chain_reader"):
        wait_for(dag_id, lambda dag_id=dag_id: {*runs(airflow, dag_id).values()} == {"success"})
    assert copied(lake) == written
    assert set(written.values()) == {1}
    assert sorted(runs(airflow, "on_commit")) == [f"hudi__on_commit__{one.time}" for one in commits]


def copied(lake):
    """Count each key in what the reader has written."""
    paths = (lake / "chain_copy").glob("*/*.parquet")
    return Counter(key for path in paths for key in pq.read_table(path)["uuid"].to_pylist())


def runs(airflow, dag_id):
    """Return the states of a DAG's runs."""
    found = airflow.call("GET", f"/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]
    return {one["dag_run_id"]: one["state"] for one in found}
