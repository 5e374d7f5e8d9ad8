"""The page of a table in a real Airflow, found by the link of the task that writes it."""

from __future__ import annotations

import urllib.request

import pytest

from tests.support.airflow_runs import JOB

pytestmark = pytest.mark.system
_TIMEOUT_S = 60


def page(airflow, path):
    """Return a page; all requests to this Airflow are an administrator's."""
    with urllib.request.urlopen(airflow.url + path, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        return answer.read().decode()


def test_a_running_task_links_to_the_page_of_its_table(airflow, start, tmp_path):
    gate = tmp_path / "gate"
    gate.mkdir()
    (gate / "rows.hold").touch()
    run = start("once", job=JOB, table=tmp_path / "linked", gate=gate)
    run.wait_for((gate / "rows.reached").exists, "the rows")
    path = run.get("write", "links")["extra_links"]["Hudi table"].removeprefix("/plugin/hudi")
    assert run.task("write")["state"] == "running"
    owner = f"once / {run.run_id} / write"
    run.wait_for(lambda: owner in page(airflow, path), "the task on the page")
    (gate / "rows.hold").unlink()
    instant = run.wait().result("write")["instant"]
    run.wait_for(lambda: f"{instant} INSERT: completed" in page(airflow, path), "its commit")
    assert path.removeprefix("/hudi/t/") in page(airflow, "/hudi/")
    attempts = page(airflow, f"/hudi/attempts/once/{run.run_id}/write/-1")
    assert instant in attempts
