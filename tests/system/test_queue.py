"""The queue in a real Airflow: a waiter holds no slot, names its blockers, and is always admitted."""

from __future__ import annotations

import time

import pytest

from airflow_occ_provider.attempts.identity import Signature
from tests.support.airflow_runs import SPARK_STARTED, clear, driver_of, error_of
from tests.support.rows import count_rows
from tests.support.table_properties import table_properties
from tests.support.writers import LOCK_BASE_PATH
from tests.system.rivals import (
    TTL_S,
    commits,
    conf,
    hold,
    open_queue,
    ours,
    state,
    states,
    wait_for_state,
    wait_for_trigger,
    waiting,
)

pytestmark = pytest.mark.system


@pytest.fixture
def queue(hudi_stack):
    queue = open_queue(hudi_stack)
    for one in queue.requests():  # left by a task that another test killed: listing removes none
        queue.evict(one)
    yield queue
    left = [one for one in queue.requests() if one.request.owner.path[0] != "test"]
    for one in queue.requests():
        queue.evict(one)
    queue.close()
    assert [one.request.owner for one in left] == []


def test_a_queued_task_is_deferred_names_its_blocker_and_runs_once_it_is_admitted(
    queue, start, tmp_path
):
    paths = conf(tmp_path)
    table = paths["table"]
    rival, apart = hold(queue, table, ["1"]), hold(queue, table, ["2"])
    run, sensors = start("queued", **paths), start("free", **paths)
    wait_for_state(run, "write", "deferred")
    log = run.log("write")
    assert "Blocked by 1 earlier request: test / " in log
    assert "/ rival (exclusive, 1, since 2" in log
    wait_for_state(sensors, "free_true", "deferred")
    wait_for_state(sensors, "free_false", "running")
    blocked = f"Not free, {table} (exclusive, 1): test / "
    sensors.wait_for(lambda: blocked in sensors.log("free_false"), "the sensor's first poke")
    assert queue.release(rival)
    run.wait()
    assert run.task("write")["state"] == "success", run.log("write")[-4000:]
    (commit,) = commits(table)
    assert int(Signature.from_extra(commit.extra).order_token) > apart.token
    assert queue.status(apart).held
    sensors.wait()
    assert states(sensors, "free_true", "free_false") == ["success", "success"]
    for name in ("free_true", "free_false"):
        assert blocked in sensors.log(name)
        assert sensors.task(name)["end_date"] > run.task("write")["start_date"]


def test_the_lock_provider_of_the_connection_is_used(start, tmp_path):
    run = start("elsewhere", **conf(tmp_path)).wait()
    log = run.log("write")
    assert run.task("write")["state"] == "success", log[-4000:]
    assert "LockProvider org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider" in log
    assert "ZookeeperBasedLockProvider" not in log
    assert "(shared, the whole table); order token" in log


@pytest.mark.nightly
def test_a_task_learns_what_it_changes_and_is_queued_with_its_like(queue, start, tmp_path):
    paths = conf(tmp_path)
    found = "of this task's runs is among the table's newest 30 commits"
    assert f"none {found}" in start("learning", **paths).wait().log("write")
    assert f"only one {found}" in start("learning", **paths).wait().log("write")
    for _ in range(2):  # they change what the first one added
        start("learning", **paths).wait()
    learned = f"{paths['table']}/.hoodie/hints"
    hold(queue, learned, ["2"])
    rival = hold(queue, learned, ["1"])
    run = start("learning", **paths)
    wait_for_trigger(run, "write")
    queue.release(rival)
    log = run.wait().log("write")
    assert "runs of this task changed the same files of 1: it is queued" in log
    assert run.task("write")["state"] == "success", log[-4000:]


def test_a_waiter_marked_failed_leaves_the_queue_and_a_cleared_one_is_queued_once(
    queue, start, tmp_path
):
    paths = conf(tmp_path)
    rival = hold(queue, paths["table"])
    run = start("queued", **paths)
    wait_for_trigger(run, "write")
    (first,) = ours(queue, paths["table"])
    clear(run)  # the next try may come before its trigger is ended: then it keeps its place
    wait_for_trigger(run, "write", 2)
    (second,) = ours(queue, paths["table"])
    assert second.token >= first.token
    run.patch("write", {"new_state": "failed"})
    # Nothing here removes a dead request: `rival` only holds, and listing removes none.
    run.wait_for(lambda: not ours(queue, paths["table"]), "the end of its request")
    run.wait()
    clear(run)
    wait_for_trigger(run, "write", 3)
    (third,) = ours(queue, paths["table"])
    assert third.token > second.token > rival.token
    run.patch("write", {"new_state": "failed"})
    run.wait_for(lambda: not ours(queue, paths["table"]), "the end of its request")


@pytest.mark.nightly
def test_a_waiter_that_times_out_fails_without_a_driver_and_is_not_retried(
    airflow, queue, start, tmp_path
):
    paths = conf(tmp_path)
    hold(queue, paths["table"])
    run, given_up = start("impatient", **paths), start("impatient", **paths)
    wait_for_trigger(given_up, "write")
    given_up.patch("write", {"new_state": "failed"})
    run.wait()
    task, log = run.task("write"), error_of(airflow, run, "write")
    assert (task["state"], task["try_number"]) == ("failed", 1), log[-3000:]
    assert "AdmissionTimeoutError" in log
    assert "not admitted within 0:00:08: Blocked by 1 earlier request: test / " in log
    assert "Remedy: look with `airflow hudi leases list`" in log
    assert SPARK_STARTED not in log
    assert ours(queue, paths["table"]) == []
    # The time between its failure and the clear does not count towards its timeout.
    clear(given_up)
    wait_for_trigger(given_up, "write", 2)
    given_up.patch("write", {"new_state": "failed"})
    given_up.wait_for(lambda: not ours(queue, paths["table"]), "the end of its request")


def test_a_lease_is_renewed_beyond_its_time_to_live_and_covers_the_runs_tasks(
    hudi_stack, queue, start, tmp_path
):
    paths = conf(tmp_path)
    gate = paths["gate"]
    run = start("leased", **paths)
    run.wait_for((gate / "first.begun").exists, "the first task")
    (held,) = ours(queue, paths["table"])
    assert [held] == ours(queue, paths["other"])
    with (
        waiting(hudi_stack, paths["table"], ["7"]) as granted,
        waiting(hudi_stack, paths["other"]) as granted_other,
    ):
        wait_for_state(run, "lease_keep", "deferred")
        time.sleep(2.2 * TTL_S)
        assert (granted, granted_other) == ([], [])
        (gate / "first.go").touch()
        run.wait_for(lambda: len(commits(paths["table"])) == 1, "the write")
        assert (granted, granted_other) == ([], [])
        assert run.task("lease_keep")["state"] == "deferred"
        run.wait()
        run.wait_for(lambda: granted and granted_other, "the rivals' grant")
    assert states(run, "lease", "first", "write", "lease_release", "lease_keep") == ["success"] * 5
    assert "The lease was released." in run.log("lease_keep")
    assert len(count_rows(paths["table"])) == 20
    (commit,) = commits(paths["table"])
    over, _, own = Signature.from_extra(commit.extra).order_token.partition(".")
    assert (int(over), int(own) > held.token) == (held.token, True)


@pytest.mark.nightly
def test_a_failed_task_and_an_evicted_lease_fail_the_run_and_free_the_table(
    airflow, queue, start, tmp_path
):
    runs = {}
    for name in ("failing", "evicted"):
        (tmp_path / name).mkdir()
        runs[name] = start("worked", **conf(tmp_path / name)), conf(tmp_path / name)
    for run, paths in runs.values():
        run.wait_for((paths["gate"] / "first.begun").exists, "the work")
        wait_for_state(run, "lease_keep", "deferred")
    (taken,) = ours(queue, tmp_path / "evicted" / "table")
    assert queue.evict(taken)
    (tmp_path / "failing" / "gate" / "first.fail").touch()
    for _, paths in runs.values():
        (paths["gate"] / "first.go").touch()
    failing, evicted = (run.wait() for run, _ in runs.values())
    assert states(failing, "first", "lease_release", "lease_keep") == ["failed", "success", "success"]
    assert state(failing) == "failed"
    assert states(evicted, "first", "lease_release") == ["success", "failed"]
    assert state(evicted) == "failed"
    log = error_of(airflow, evicted, "lease_release")
    assert "was gone before it was released" in log


def test_an_impossible_request_is_refused_and_leaves_nothing_in_the_queue(
    airflow, hudi_stack, queue, start, tmp_path
):
    airflow.add_connection(
        "hudi_lock_one_root",
        conn_type="hudi_zookeeper_lock",
        host=hudi_stack.zookeeper.hosts,
        extra={"base_path": LOCK_BASE_PATH, "lease_root": LOCK_BASE_PATH},
    )
    paths = conf(tmp_path)
    (paths["table"] / ".hoodie").mkdir(parents=True)
    properties = table_properties(
        table__partition__fields="p", datasource__write__hive_style_partitioning="true"
    )
    (paths["table"] / ".hoodie" / "hoodie.properties").write_text(properties)
    wrong, beyond = start("wrong", **paths), start("beyond", **paths)
    said = {
        (wrong, "scope"): "'day=1' cannot be: the table is partitioned by p=...",
        (wrong, "root"): f"lease_root: {LOCK_BASE_PATH} and Hudi's base path {LOCK_BASE_PATH} overlap",
        (beyond, "write"): f"requests {paths['other']} (exclusive, 1), but beyond / ",
    }
    for (run, name), words in said.items():
        run.wait()
        log, task = error_of(airflow, run, name), run.task(name)
        assert (task["state"], task["try_number"]) == ("failed", 1), log[-3000:]
        assert words in log, log[-3000:]
        assert SPARK_STARTED not in log
    assert states(beyond, "lease_release", "lease_keep") == ["success", "success"]


def kill_task(paths):
    """Kill the process of the task that runs a table's driver."""
    driver_of(paths["table"]).parent().kill()


def test_a_killed_workers_place_goes_to_its_retry_or_to_the_next_waiter(
    hudi_stack, queue, start, tmp_path
):
    (tmp_path / "late").mkdir()
    paths, late = conf(tmp_path), conf(tmp_path / "late")
    soon, never = start("killed_1", **paths), start("killed_600", **late)
    for run, given in ((soon, paths), (never, late)):
        run.wait_for((given["gate"] / "w.begun").exists, "the write's begin")
    with (
        waiting(hudi_stack, paths["table"]) as granted,
        waiting(hudi_stack, late["table"]) as granted_late,
    ):
        (place,) = ours(queue, paths["table"])
        kill_task(paths)
        kill_task(late)
        never.wait_for(lambda: granted_late, "the rival's grant")
        assert never.task("write")["try_number"] == 1
        never.patch("write", {"new_state": "failed"})
        assert granted == []
        (paths["gate"] / "w.go").touch()
        soon.wait()
        task = soon.task("write")
        assert (task["state"], task["try_number"]) == ("success", 2), soon.log("write", 2)[-3000:]
        (commit,) = commits(paths["table"])
        assert Signature.from_extra(commit.extra).order_token == str(place.token)
        soon.wait_for(lambda: granted, "the rival's grant")
    never.wait()


@pytest.mark.nightly
def test_leases_over_two_tables_do_not_deadlock(airflow, queue, start, tmp_path):
    airflow.call("POST", "/pools", {"name": "one_slot", "slots": 1, "description": ""})
    rivals, runs = [], []
    for name, dags in (
        ("crossed", ["one_way", "other_way"] * 2),
        ("one_at_a_time", ["one_at_a_time"] * 2),
        ("one_slot", ["one_slot"] * 2),
    ):
        (tmp_path / name).mkdir()
        rivals.append(hold(queue, tmp_path / name / "table"))
        runs += [start(dag, **conf(tmp_path / name)) for dag in dags]
    for run in runs[:4]:
        wait_for_state(run, "lease", "deferred")
    # One of each pair waits; whether the other gets that far depends on Airflow.
    for first, second in (runs[4:6], runs[6:]):
        first.wait_for(
            lambda pair=(first, second): any(states(run, "lease") == ["deferred"] for run in pair),
            "a wait",
        )
    began = time.monotonic()
    for rival in rivals:
        queue.release(rival)
    names = ("lease", "alone", "lease_release", "lease_keep")
    for run in runs:
        run.wait()
        assert states(run, *names) == ["success"] * 4, run.dag_id
    print(f"{len(runs)} runs ended {time.monotonic() - began:.1f} s after the rivals")


@pytest.mark.nightly
def test_cleared_work_requests_and_keeps_its_lease_again(queue, start, tmp_path):
    first, second = conf(tmp_path), {**conf(tmp_path), "gate": tmp_path / "second"}
    second["gate"].mkdir()
    (first["gate"] / "first.go").touch()
    earlier = start("worked", **first).wait()
    later = start("worked", **second)
    later.wait_for((second["gate"] / "first.begun").exists, "the work")
    clear(earlier, "first")
    wait_for_state(earlier, "lease", "deferred", 2)
    clear(later, "first")  # while it holds: it is queued behind the waiter
    wait_for_state(later, "lease", "deferred", 2)
    (second["gate"] / "first.go").touch()
    for run in (earlier, later):
        run.wait()
        assert states(run, "lease", "first", "lease_release", "lease_keep") == ["success"] * 4
        assert run.task("first")["try_number"] == 2
        # Deferred tasks: a busy scheduler may fail a try (triggers.base), which is retried.
        assert min(run.task(name)["try_number"] for name in ("lease", "lease_keep")) >= 2


@pytest.mark.nightly
def test_a_killed_triggerer_loses_no_place_to_a_waiter_that_polls(
    hudi_stack, queue, start, triggerer, tmp_path
):
    paths = conf(tmp_path)
    rival = hold(queue, paths["table"])
    run = start("worked", **paths)
    wait_for_state(run, "lease", "deferred")
    (place,) = ours(queue, paths["table"])
    (paths["gate"] / "first.go").touch()
    triggerer.kill()
    with waiting(hudi_stack, paths["table"]) as granted:
        assert queue.release(rival)
        time.sleep(1.2 * TTL_S)
        assert granted == []
        triggerer.start()
        run.wait()
    assert states(run, "lease", "first", "lease_release", "lease_keep") == ["success"] * 4
    assert f"Holds {paths['table']} (exclusive, the whole table); order token {place.token}." in run.log(
        "lease"
    )
