"""The operator in a real Airflow: scheduler, workers, API server, retries and kills."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time

import psutil
import pytest

from tests.support.airflow_runs import SPARK_STARTED, driver_of, error_of, session_of, signatures
from tests.support.writers import JOB, commit_lock_held, has_markers, inflight
from tests.system.dags.refused import CASES

pytestmark = pytest.mark.system
FIELDS = {
    "missing_spark_connection": "conn_id",
    "unreachable_zookeeper": "ZooKeeper at 127.0.0.1:1",
    "site_eager": "eager/hudi-defaults.conf",
}


def test_contradicting_settings_are_refused_before_spark_starts(airflow, start, tmp_path):
    (tmp_path / "eager").mkdir()
    (tmp_path / "eager" / "hudi-defaults.conf").write_text("hoodie.cleaner.policy.failed.writes=EAGER\n")
    run = start("refused", job=JOB, folder=tmp_path).wait()
    for name in CASES:
        task = run.task(name)
        log = error_of(airflow, run, name)
        assert (task["state"], task["try_number"]) == ("failed", 1), (name, log[-3000:])
        assert SPARK_STARTED not in log, name
        assert FIELDS[name] in log, (name, log[-3000:])
        assert "Remedy: " in log, name
    assert not (tmp_path / "t").exists()


def test_jobs_with_their_own_options_end_in_the_right_outcome(airflow, start, tmp_path):
    run = start("written", job=JOB, folder=tmp_path).wait()
    states = [run.task("variants", index)["state"] for index in range(4)]
    logs = [run.log("variants", map_index=index) for index in range(4)]
    assert states == ["success", "success", "success", "failed"], "\n".join(log[-2500:] for log in logs)
    for index, outcome in enumerate(("committed", "committed", "nothing_written", "misconfiguration")):
        assert f"Outcome: {outcome} " in logs[index]
        assert "do-not-show-me" not in logs[index]
    assert "the job's own write has hoodie.write.concurrency.mode=single_writer: remove it" in logs[3]
    for index in (0, 1):
        (signature,) = signatures(tmp_path / f"t{index}")
        assert (signature.task_id, signature.map_index, signature.try_number) == ("variants", index, 1)
        result = run.result("variants", index)
        assert set(result) == {
            *("instant", "instants", "action", "operation", "partitions", "file_groups", "records"),
            "seconds",
        }
        assert result["instants"] == [result["instant"]]
        assert (result["action"], result["operation"]) == ("commit", "UPSERT")
        assert (result["partitions"], result["file_groups"], result["records"]) == (["0", "1"], 2, 20)
    assert run.result("variants", 2)["instant"] is None
    late = run.log("single_writer_without_early_detection")
    assert "Outcome: misconfiguration " in late
    assert run.task("single_writer_without_early_detection")["try_number"] == 1
    check_what_the_ui_shows(airflow, run)


def check_what_the_ui_shows(airflow, run):
    shown = run.get("variants", "", 0)["rendered_fields"]
    added = shown["hudi_defaults"]
    added = json.loads(added) if isinstance(added, str) else added
    assert added["hoodie.write.concurrency.mode"] == "OPTIMISTIC_CONCURRENCY_CONTROL"
    assert added["_airflow_identity"]
    assert "do-not-show-me" not in json.dumps(shown)
    assert "run_job.py" in json.dumps(shown["submission"])
    events = airflow.call("GET", "/assets/events?limit=50")["asset_events"]
    instants = {
        event["extra"].get("instant") for event in events if event["source_task_id"] == "variants"
    }
    assert run.result("variants", 0)["instant"] in instants


def test_a_killed_driver_is_retried_at_once_and_commits_exactly_once(hudi_stack, start, tmp_path):
    """SIGKILL of the JVM while its instant is inflight with markers; Hudi's tolerance is kept."""
    table, gate = tmp_path / "t", tmp_path / "gate"
    gate.mkdir()
    (gate / "w.go").touch()
    start("killed", job=JOB, table=table, gate=gate).wait()
    run = start("killed", job=JOB, table=table, gate=gate)
    run.wait_for(lambda: inflight(table), "an inflight instant")
    with commit_lock_held(hudi_stack.zookeeper.hosts):
        (instant,) = inflight(table)
        run.wait_for(lambda: has_markers(table, instant), "markers")
        driver_of(table).kill()
        run.wait_for_retry(1)
    run.wait()
    task = run.task("write")
    assert (task["state"], task["try_number"]) == ("success", 2), run.log("write", 2)[-3000:]
    first = run.log("write", 1)
    assert "Outcome: killed " in first
    assert f"The driver left instant {instant} unfinished" in first
    assert "[killed, retry 1 of 2]" in first
    ours = [s for s in signatures(table) if s.run_id == run.run_id]
    assert [s.try_number for s in ours] == [2]


def test_marking_a_task_failed_kills_its_driver_with_its_process_tree(start, tmp_path):
    """The gate stays closed, so PySpark's workers would wait forever: they must end, too."""
    table, gate = tmp_path / "t", tmp_path / "gate"
    gate.mkdir()
    run = start("killed", job=JOB, table=table, gate=gate)
    run.wait_for((gate / "w.begun").exists, "the start of the write")
    session = driver_of(table).pid
    assert len(session_of(session)) > 2
    run.patch("write", {"new_state": "failed"})
    run.wait_for(lambda: not session_of(session), "the end of the driver's session")
    run.wait()
    assert signatures(table) == []


@pytest.mark.nightly
def test_a_killed_jvm_is_detected_while_its_python_workers_still_run(start, tmp_path):
    table, gate = tmp_path / "t", tmp_path / "gate"
    gate.mkdir()
    run = start("killed", job=JOB, table=table, gate=gate)
    run.wait_for((gate / "w.begun").exists, "the start of the write")
    driver_of(table).kill()
    run.wait_for_retry(1)
    (gate / "w.go").touch()
    run.wait()
    assert run.task("write")["state"] == "success"
    assert [s.try_number for s in signatures(table)] == [2]


@pytest.mark.nightly
def test_a_task_writes_again_when_cleared_after_success_but_not_after_failure(airflow, start, tmp_path):
    table, gate = tmp_path / "t", tmp_path / "gate"
    gate.mkdir()
    (gate / "w.go").touch()
    run = start("killed", job=JOB, table=table, gate=gate).wait()
    assert len(signatures(table)) == 1
    body = {"dry_run": False, "task_ids": ["write"], "dag_run_id": run.run_id, "only_failed": False}
    airflow.call("POST", "/dags/killed/clearTaskInstances", body)
    run.wait_for(lambda: run.task("write")["try_number"] == 2, "the second try")
    run.wait()
    first, second = signatures(table)
    assert first.identity != second.identity


@pytest.mark.nightly
def test_a_task_begins_once_though_the_api_server_stands_still_for_a_minute(airflow, start, tmp_path):
    """With Airflow's own 5 s per call its first try was lost: without a log, and outside the history."""
    port = f"port:{airflow.port}"
    servers = [p for p in psutil.process_iter(["cmdline"]) if port in " ".join(p.info["cmdline"] or [])]
    run = start("refused", job=JOB, folder=tmp_path)
    for server in servers:
        server.suspend()
    try:
        time.sleep(60)
    finally:
        for server in servers:
            server.resume()
    run.wait()
    assert servers
    for name in CASES:
        assert "Remedy: " in error_of(airflow, run, name), name
        assert run.task(name)["try_number"] == 1, name


@pytest.mark.nightly
def test_no_component_ends_though_the_database_is_locked_for_half_a_minute(airflow):
    """With SQLite's own 5 s the scheduler, the triggerer and the DAG processor ended for good."""
    before = components(airflow)
    with contextlib.closing(sqlite3.connect(airflow.database, 300, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        time.sleep(30)
        database.execute("ROLLBACK")
    time.sleep(5)
    assert len(before) >= 4
    assert before <= components(airflow)


def components(airflow):
    names = {"scheduler", "triggerer", "dag-processor", "api_server"}
    below = psutil.Process(airflow._server._guard.pid).children(recursive=True)
    return {one for one in below if names & set(" ".join(one.cmdline()).split())}
