"""Drivers' pods in a real cluster: granted, ended, deleted, evicted, out of memory, unreachable."""

from __future__ import annotations

import time

import pytest

from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen
from airflow_occ_provider.errors import NotSubmittedError, StateStoreError
from tests.k8s.conftest import left
from tests.k8s.pod_script import api, follower, has_begun, script_driver, script_pod
from tests.support.observed import until

WAITS = "echo begun; sleep 6000"


def begun(script, key, container=None):
    place, handle = script_pod(script, key, container)
    until(lambda: has_begun(pod_of(handle)), "the container")
    return place, handle


def pod_of(handle):
    return api().pod(handle.facts["pod"])


def ended(place, handle):
    return until(lambda: state if isinstance(state := place.state(handle), Ended) else None, "its end")


# Drivers that follow the contract of their folder.


def test_a_driver_does_nothing_before_it_is_recorded_and_leaves_nothing(tmp_path):
    driver, ran = script_driver(f"echo ran > {tmp_path}/ran; exit 3", "gated", tmp_path), []

    def record(handle):
        until(lambda: has_begun(pod_of(handle)), "the container")
        time.sleep(3)  # it may not run in any time
        ran.append((tmp_path / "ran").exists())

    entries = []
    handle = driver.submit(record, entries.append)
    until(lambda: (read := driver.read(handle, 0.1)) is None or entries.extend(read), "the end")
    assert ran == [False]
    assert (tmp_path / "ran").exists()
    assert driver.poll(handle) == Ended(3)
    assert f"The driver's log: kubectl -n spark logs -f {handle.facts['pod']}\n" in entries
    driver.place.forget("gated")
    until(lambda: not left(), "the cluster's own collector")


def test_a_driver_that_was_not_recorded_never_runs(tmp_path):
    def dies(_):
        raise StateStoreError("away")

    driver = script_driver(f"echo ran > {tmp_path}/ran", "unrecorded", tmp_path)
    driver.place.kill = lambda _: None  # as a process that is killed
    with pytest.raises(StateStoreError):
        driver.submit(dies)
    (pod,) = api().drivers("airflow-occ-identity=unrecorded")
    until(lambda: not api().pod(pod.name).is_living, "its end")
    assert not (tmp_path / "ran").exists()
    follower().forget("unrecorded")
    until(lambda: not left(), "the pod's removal")


def test_a_pod_that_fails_before_its_driver_waits_is_an_error_with_its_log(tmp_path):
    driver = script_driver("true", "fails", tmp_path)
    driver.place._launch._container["command"] = ["sh", "-c", "echo no python; exit 127"]
    with pytest.raises(NotSubmittedError, match=r"exit code 127 \(Error\)\n.*\nno python"):
        driver.submit(lambda _: None)


# What a pod proves.


def test_an_end_keeps_status_and_log_for_a_later_process():
    place, handle = begun(WAITS, "ended")
    place.kill(handle)
    assert ended(place, handle) == Ended(None)
    later = follower()
    assert later.state(handle) == Ended(None)
    first, _, last = later.last_lines(handle)
    assert "DeadlineExceeded" in first
    assert last == "begun\n"


def test_a_pod_that_waits_for_its_image_is_ended_too():
    place, handle = script_pod(WAITS, "image", {"image": "docker.io/airflow-occ/none:1"})
    until(lambda: place.state(handle) and "ErrImageNeverPull" in "".join(place.output(0)), "its reason")
    place.kill(handle)
    until(lambda: not pod_of(handle).is_living, "its end")


def test_a_pod_that_is_deleted_by_force_is_unseen():
    place, handle = begun(WAITS, "forced")
    assert place.state(handle) == Running()
    api()._call("DELETE", f"pods/{handle.facts['pod']}", body={"gracePeriodSeconds": 0})
    until(lambda: isinstance(place.state(handle), Unseen), "its loss")


def test_out_of_memory_is_an_end_by_a_signal():
    limited = {"resources": {"limits": {"memory": "32Mi"}}}
    place, handle = script_pod("exec perl -e '$x = q(x) x (200 << 20)'", "memory", limited)
    assert ended(place, handle) == Ended(None)
    assert "OOMKilled" in place.output(0)[-1]


def test_an_evicted_pod_has_ended_when_its_container_has():
    script = "echo begun; dd if=/dev/zero of=/small/x bs=1M count=5; sleep 6000"
    place, handle = script_pod(script, "evicted")
    assert ended(place, handle)
    assert "Evicted" in place.last_lines(handle)[0]


def test_a_frozen_node_proves_nothing_until_it_answers_again(kubelet):
    place, handle = begun(WAITS, "frozen")
    kubelet.freeze()
    place.kill(handle)
    time.sleep(3)  # it may not end in any time
    assert place.state(handle) == Running()
    kubelet.thaw()
    ended(place, handle)
