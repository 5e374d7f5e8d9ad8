"""One task run, one commit: retries, clears, backfills, re-created runs, other deployments."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey

from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.storage.table import HudiTable
from tests.services.airflow import EmbeddedAirflow
from tests.support.airflow_runs import JOB, ONCE, clear, driver_of, session_of, signatures
from tests.support.rows import count_rows
from tests.system.conftest import DAGS, Run, add_connections

pytestmark = pytest.mark.system
SAME = TaskInstanceKey("once", "write", "same", try_number=1, map_index=-1)


@pytest.fixture
def paths(tmp_path):
    gate = tmp_path / "gate"
    gate.mkdir()
    return {"job": JOB, "table": tmp_path / "t", "gate": gate}


def wait_for_try(run, number, state):
    def there():
        task = run.task("write")
        return task["try_number"] == number and task["state"] == state

    run.wait_for(there, f"try {number} {state}")


def keyed(*names):
    """Return each row of some items, as often as the item is named."""
    return Counter(f"{name}-{number}" for name in names for number in range(20))


def test_a_task_that_failed_after_its_commit_does_not_write_again_when_cleared(airflow, start, paths):
    (paths["gate"] / "after.fail").touch()
    run = start("once", **paths).wait()
    assert run.task("write")["state"] == "failed"
    (commit,) = HudiTable(str(paths["table"])).snapshot().timeline.completed_writes()
    assert f"after its commit {commit.time}" in run.log("write")
    clear(run)
    wait_for_try(run, 2, "failed")
    assert f"commit {commit.time} of try 1 is in the table, but its driver failed" in run.log("write", 2)
    assert count_rows(paths["table"]) == ONCE
    printed = attempts(airflow, run)
    (attempt,) = printed["attempts"]
    assert (attempt["commit"], attempt["outcome"]) == (commit.time, "committed")
    assert attempt["instants"] == {commit.time: "commit COMPLETED"}
    assert (attempt["settled"], printed["succeeded"], printed["waiting"]) == (True, False, None)


def attempts(airflow, run, *options):
    """Return what ``airflow hudi attempts`` prints."""
    command = ["airflow", "hudi", "attempts", run.dag_id, run.run_id, "write", "-o", "json", *options]
    done = subprocess.run(
        command, env=airflow.environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout[done.stdout.index("{") :])


@pytest.mark.nightly
def test_arguments_that_differ_between_tries_do_not_write_twice(start, paths, tmp_path):
    """The arguments contain a try number, the time and the path of a bundle."""
    for number in (1, 2, 3):
        (paths["gate"] / str(number)).mkdir()
        shutil.copy(JOB, paths["gate"] / str(number) / "job.py")
    (paths["gate"] / "after.hold").touch()
    run = start("restless", **paths)
    run.wait_for((paths["gate"] / "after.reached").exists, "the commit")
    away = tmp_path / "away"
    paths["table"].rename(away)  # so that the try that wrote it cannot tell
    (paths["gate"] / "after.hold").unlink()
    run.wait_for_retry(1)
    away.rename(paths["table"])
    task = run.wait().task("write")
    assert (task["state"], task["try_number"] > 1) == ("success", True), run.log("write", 2)[-3000:]
    assert count_rows(paths["table"]) == ONCE


@pytest.mark.nightly
def test_other_arguments_after_a_clear_are_not_counted_as_committed(start, paths):
    (paths["gate"] / "after.fail").touch()
    run = start("changed", **paths).wait()
    assert run.task("write")["state"] == "failed"
    clear(run)
    wait_for_try(run, 2, "failed")
    assert "whether it is this try's work is unknown" in run.log("write", 2)
    assert count_rows(paths["table"]) == ONCE


@pytest.mark.nightly
def test_a_run_created_again_under_the_same_id_writes_again(airflow, paths):
    body = {"logical_date": None, "dag_run_id": "same", "conf": {k: str(v) for k, v in paths.items()}}
    airflow.call("PATCH", "/dags/once", {"is_paused": False})
    log = airflow.folder / "standalone.log"

    def ends_logged():
        lines = log.read_text(errors="replace").splitlines()
        return sum("success" in line and repr(SAME) in line for line in lines)

    for number in (1, 2):
        airflow.call("POST", "/dags/once/dagRuns", body)
        run = Run(airflow, "once", run_id="same").wait()
        assert run.task("write")["state"] == "success", run.log("write")[-3000:]
        # Before the run is deleted: else the scheduler mistakes its end for the next run's.
        run.wait_for(lambda n=number: ends_logged() >= n, "the scheduler's log line of the end")
        airflow.call("DELETE", "/dags/once/dagRuns/same")
    assert count_rows(paths["table"]) == ONCE + ONCE


@pytest.mark.nightly
def test_a_mapped_task_whose_items_changed_places_writes_each_item(start, paths):
    items = paths["gate"] / "items.json"
    items.write_text('["a", "b"]')
    (paths["gate"] / "a-before.fail").touch()
    run = start("items", **paths).wait()
    assert [run.task("write", index)["state"] for index in (0, 1)] == ["failed", "success"]
    assert count_rows(paths["table"]) == keyed("b")
    items.write_text('["c", "a", "b"]')
    clear(run, "items", "write")

    def written():
        return [one["state"] for one in run.mapped("write").values()] == ["success"] * 3

    run.wait_for(written, "the three items")
    assert count_rows(paths["table"]) == keyed("b", "c", "a", "b")


def start_backfill(airflow, body):
    """Start a backfill; cancel one whose creation a busy SQLite has cut off, before it runs anything.

    After such a failure, Airflow 3.3.2 shows that backfill for a while, also if it was not stored.
    """
    airflow.call("PATCH", "/dags/dated", {"is_paused": True})
    for left in reversed(range(60)):
        try:
            number = airflow.call("POST", "/backfills", body)["id"]
            break
        except EmbeddedError as error:
            if " 409" not in str(error) or not left:
                raise
        with suppress(EmbeddedError):
            for one in airflow.call("GET", "/backfills?dag_id=dated")["backfills"]:
                if not one["completed_at"]:
                    airflow.call("PUT", f"/backfills/{one['id']}/cancel")
        time.sleep(1)
    airflow.call("PATCH", "/dags/dated", {"is_paused": False})
    return number


@pytest.mark.nightly
def test_a_backfill_over_the_same_dates_writes_again(airflow, paths):
    body = {
        "dag_id": "dated",
        "from_date": "2026-01-01T00:00:00Z",
        "to_date": "2026-01-02T00:00:00Z",
        "max_active_runs": 2,
        "reprocess_behavior": "completed",
        "dag_run_conf": {key: str(value) for key, value in paths.items()},
    }
    dates = ("2026-01-01", "2026-01-02")
    for times in (1, 2):
        number = start_backfill(airflow, body)
        run = Run(airflow, "dated", run_id="backfill")

        def ended(number=number):
            return airflow.call("GET", f"/backfills/{number}")["completed_at"]

        run.wait_for(ended, "the backfill")
        assert count_rows(paths["table"]) == keyed(*dates * times)


@pytest.mark.nightly
def test_two_deployments_with_equal_ids_both_write(airflow, hudi_stack, tmp_path, paths):
    body = {"logical_date": None, "dag_run_id": "equal", "conf": {k: str(v) for k, v in paths.items()}}

    def write(deployment):
        deployment.call("PATCH", "/dags/once", {"is_paused": False})
        deployment.call("POST", "/dags/once/dagRuns", body)
        run = Run(deployment, "once", run_id="equal").wait()
        assert run.task("write")["state"] == "success", run.log("write")[-3000:]

    write(airflow)
    with EmbeddedAirflow(tmp_path / "other", DAGS, hudi_stack.environment) as other:
        add_connections(other, hudi_stack)
        Run(other, "once", run_id="equal").wait_for(lambda: other.has_dag("once"), "the DAG")
        write(other)
    assert count_rows(paths["table"]) == ONCE + ONCE
    first, second = signatures(paths["table"])
    assert first.identity != second.identity
    assert (first.dag_id, first.run_id) == (second.dag_id, second.run_id)


def test_unreachable_storage_leaves_the_commit_state_unknown_until_it_is_back(start, paths):
    table, away = paths["table"], paths["gate"] / "away"
    (paths["gate"] / "after.hold").touch()
    run = start("once", **paths)
    run.wait_for((paths["gate"] / "after.reached").exists, "the commit")
    table.rename(away)
    table.touch()
    (paths["gate"] / "after.hold").unlink()
    run.wait_for_retry(2)
    for number in (1, 2):
        log = run.log("write", number)
        assert "commit state unknown" in log, log[-3000:]
    assert "Spark-Submit cmd" not in run.log("write", 2)
    table.unlink()
    away.rename(table)
    run.wait()
    task = run.task("write")
    assert (task["state"], task["try_number"] > 2) == ("success", True), run.log("write", 3)[-3000:]
    assert count_rows(table) == ONCE


@pytest.mark.nightly
def test_a_table_that_has_disappeared_is_not_created_again(start, paths):
    """A lost mount shows an empty folder, which does not prove that nothing was committed."""
    table, away = paths["table"], paths["gate"] / "away"
    (paths["gate"] / "after.hold").touch()
    run = start("once", **paths)
    run.wait_for((paths["gate"] / "after.reached").exists, "the commit")
    table.rename(away)
    (paths["gate"] / "after.hold").unlink()
    run.wait_for_retry(2)
    assert not table.exists()
    away.rename(table)
    assert run.wait().task("write")["state"] == "success"
    assert count_rows(table) == ONCE


def test_a_task_that_times_out_leaves_no_driver_and_no_ghost(start, paths):
    hold = paths["gate"] / "rows.hold"
    hold.touch()
    run = start("hasty", **paths)
    run.wait_for((paths["gate"] / "rows.reached").exists, "the write")
    driver, number = driver_of(paths["table"]), run.task("write")["try_number"]
    session = driver.pid
    driver.parent().send_signal(signal.SIGALRM)  # as ``execution_timeout`` does
    run.wait_for(lambda: not session_of(session), "the driver's end")
    hold.unlink()
    run.wait()
    task = run.task("write")
    last = run.log("write", number + 1)
    assert (task["state"], task["try_number"]) == ("success", number + 1), last[-3000:]
    assert "its heartbeat was removed" in run.log("write", number) + last
    assert count_rows(paths["table"]) == ONCE


@pytest.mark.nightly
def test_a_task_cleared_while_it_runs_starts_over_without_a_rival(start, paths):
    hold = paths["gate"] / "rows.hold"
    hold.touch()
    run = start("once", **paths)
    run.wait_for((paths["gate"] / "rows.reached").exists, "the write")
    first = driver_of(paths["table"])
    clear(run)

    def restarted():
        second = driver_of(paths["table"])
        assert not (second and first.is_running() and second.pid != first.pid), "two drivers"
        return second and second.pid != first.pid

    run.wait_for(restarted, "the second driver")
    hold.unlink()
    run.wait()
    assert run.task("write")["state"] == "success", run.log("write", 2)[-3000:]
    assert count_rows(paths["table"]) == ONCE
    assert [signature.try_number for signature in signatures(paths["table"])] == [2]
