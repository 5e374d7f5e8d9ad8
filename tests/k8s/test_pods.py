"""Drivers' pods in a real cluster: gated, found, ended, deleted, evicted, out of memory, unreachable."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import NotSubmittedError, StateStoreError
from airflow_occ_provider.submitters.patience import Patience
from tests.k8s.conftest import left
from tests.k8s.pod_script import api, script_cluster
from tests.observed import until

WAITS = "echo begun; sleep 6000"


def begun(one, key, script=WAITS):
    handle, lines = one.submit(key, lambda _: None), []
    until(lambda: lines.extend(one.read(handle, 0.1) or ()) or "begun\n" in lines, "its first line")
    return handle


def read_all(one, handle):
    lines = []
    until(lambda: (found := one.read(handle, 0.1)) is None or lines.extend(found), "the end of the log")
    return lines


def test_a_pod_does_nothing_before_it_is_recorded_and_leaves_nothing():
    one, states = script_cluster("cat /etc/airflow-occ/input; echo; exit 3"), []

    def record(handle):
        time.sleep(3)
        states.append(one.api.pod(handle.facts["pod"]).has_begun)

    handle = one.submit("gated", record)
    assert states == [False]
    assert read_all(one, handle)[:1] == ["x\n"]
    assert one.poll(handle) == Ended(3)
    assert {name.partition("/")[0] for name in left()} == {"pod", "secret"}
    one.forget("gated")
    until(lambda: not left(), "the cluster's own collector")


def test_a_pod_that_was_not_recorded_never_runs_and_is_removed_by_the_next_try():
    def dies(_):
        raise StateStoreError("away")

    one = script_cluster("echo ran")
    one._end = lambda *_: None  # as a process that is killed
    with pytest.raises(StateStoreError):
        one.submit("unrecorded", dies)
    (pod,) = api().drivers("airflow-occ-identity=unrecorded")
    assert not pod.has_begun
    assert script_cluster("").find("unrecorded") is None
    until(lambda: not left(), "the pod's end")


def test_a_recorded_driver_without_its_input_is_ended_by_whoever_follows_it():
    one, recorded = script_cluster("echo ran"), []
    one.api.create_secret = lambda _: None  # its process is killed between record and Secret
    one.submit("closed", recorded.append)
    later = script_cluster("", end_s=1.0)
    handle = Handle.from_json(recorded[0].to_json())
    until(lambda: later.poll(handle) == Ended(-9), "its end")
    assert "ran\n" not in read_all(later, handle)


def test_a_living_driver_of_the_same_run_keeps_a_second_one_out():
    one = script_cluster(WAITS)
    handle = begun(one, "twin")
    with pytest.raises(NotSubmittedError, match="of this task run is alive"):
        script_cluster(WAITS).submit("twin", lambda _: None)
    assert one.find("twin") == handle
    one.end(handle)
    assert one.find("twin") is None


def test_an_end_keeps_status_and_log_for_a_later_process():
    one = script_cluster(WAITS)
    handle = begun(one, "ended")
    one.end(handle)
    later = script_cluster("")
    assert later.poll(handle) == Ended(-9)
    lines = read_all(later, handle)
    assert lines[0] == "begun\n"
    assert "DeadlineExceeded" in lines[-1]


def test_a_deleted_pod_is_never_a_success():
    one = script_cluster("trap 'exit 0' TERM; echo begun; while true; do sleep 0.1; done")
    handle = begun(one, "deleted")
    api().delete(api().pod(handle.facts["pod"]))
    until(lambda: api().pod(handle.facts["pod"]) is None, "the deletion")
    assert isinstance(script_cluster("").poll(handle), Unseen)  # it has no earlier state to ask from
    state = one.poll(handle)
    assert state == Ended(-15, log_is_whole=state.log_is_whole)


def test_a_pod_that_is_deleted_by_force_is_unseen():
    one = script_cluster(WAITS)
    handle = begun(one, "forced")
    one.api._call("DELETE", f"pods/{handle.facts['pod']}", body={"gracePeriodSeconds": 0})
    until(lambda: isinstance(one.poll(handle), Unseen), "its loss")
    assert one.find("forced") is None


def test_out_of_memory_is_an_end_by_a_signal():
    limited = {"resources": {"limits": {"memory": "32Mi"}}}
    one = script_cluster("exec perl -e '$x = q(x) x (200 << 20)'", limited)
    handle = one.submit("memory", lambda _: None)
    assert "OOMKilled" in read_all(one, handle)[-1]
    assert one.poll(handle) == Ended(-9)


def test_an_evicted_pod_has_ended_when_its_container_has():
    one = script_cluster("echo begun; dd if=/dev/zero of=/small/x bs=1M count=5; sleep 6000")
    handle = begun(one, "evicted")
    lines = read_all(one, handle)
    assert any("Evicted" in line for line in lines)
    assert one.poll(handle).exit_code == -9


def test_a_frozen_node_proves_nothing_until_it_answers_again(kubelet):
    one = script_cluster(WAITS, end_s=1.0)
    handle = begun(one, "frozen")
    kubelet.freeze()
    one.end(handle)
    assert one.poll(handle) == Running()
    assert one.read(handle, 0) is not None  # nor does its log
    kubelet.thaw()
    until(lambda: isinstance(one.poll(handle), Ended), "its end")


def test_a_worker_that_is_killed_takes_spark_submit_along(tmp_path):
    pid = tmp_path / "pid"
    program = (
        "from tests.k8s.pod_script import script_cluster\n"
        "one = script_cluster('')\n"
        f"one.command = lambda conf: ['sh', '-c', 'echo $$ > {pid}; exec sleep 600']\n"
        "one.submit('killed', print)\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program])
    until(lambda: pid.exists() and pid.read_text(), "spark-submit")
    worker.kill()
    worker.wait()
    number = int(pid.read_text())
    until(lambda: not _lives(number), "the end of spark-submit")


def _lives(pid):
    import psutil

    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_an_api_server_that_is_away_is_waited_for(monkeypatch):
    one = script_cluster(WAITS, patience=Patience(60))
    handle = begun(one, "away")

    def refused(*_, **__):
        raise ConnectionRefusedError

    monkeypatch.setattr(one.api._client, "call_api", refused)
    state = one.poll(handle)
    assert isinstance(state, Unseen)
    assert state.is_away
    assert one.read(handle, 0) == []
    monkeypatch.undo()
    assert one.poll(handle) == Running()
