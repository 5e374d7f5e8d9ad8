"""Drivers in a real YARN: granted once, followed by their folder, ended only by proof."""

from __future__ import annotations

import os
import signal
import threading

import psutil
import pytest

from airflow_occ_provider.attempts.submission import SparkJob, offered
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.errors import NotSubmittedError
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.submitters.yarn_place import (
    COMMON_TAG,
    ResourceManager,
    YarnPlace,
    attempt_tag,
)
from tests.services.yarn import EmbeddedYarn
from tests.support.in_yarn import YarnLaunch
from tests.support.observed import until
from tests.support.yarn_script import script_driver

pytestmark = [pytest.mark.real, pytest.mark.yarn]

JOB = """
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.1)
print("the last line", file=sys.stderr, flush=True)
sys.exit(78)
"""
WAITS = "echo $PPID >> {folder}/pid; echo begun; while true; do sleep 0.1; done\n"


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(Place, "period_s", 0.5)
    monkeypatch.setattr(Place, "request_s", 0.5)


@pytest.fixture
def waits(tmp_path):
    return WAITS.format(folder=tmp_path)


def read_all(driver, handle):
    entries = []
    until(lambda: (read := driver.read(handle, 0.1)) is None or entries.extend(read), "the end")
    return entries


def pids(folder):
    """The processes of the drivers that have run the script."""
    return list(map(int, (folder / "pid").read_text().split())) if (folder / "pid").exists() else []


def is_alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_spark_driver_is_followed_beyond_a_crash_of_the_resource_manager(embedded_yarn, tmp_path):
    yarn, begun, latch, job = embedded_yarn, tmp_path / "begun", tmp_path / "latch", tmp_path / "job.py"
    job.write_text(JOB)
    folder, manager = (
        AttemptFolder(f"file://{tmp_path}/attempt"),
        ResourceManager([yarn.resource_manager]),
    )
    with offered(SparkJob(str(job), (str(begun), str(latch))), {}, folder) as submission:
        launch = YarnLaunch(submission, yarn.environment(spark_environment(tmp_path / "spark")))
        place = YarnPlace(manager, launch, {"spark.yarn.tags": "mine"})
        driver = FolderDriver(AttemptFolder, place, submission)
        recorded, printed = [], []
        handle = driver.submit(recorded.append, printed.append)
        assert recorded == [handle]
        application = handle.facts["application"]
        assert handle.name == f"YARN {application}"
        assert manager.application(application).tags > {"mine", COMMON_TAG}
        entries = []
        until(lambda: entries.extend(driver.read(handle, 0.1)) or begun.exists(), "the job")
        assert application in "".join(printed), "what spark-submit says"
        os.kill(yarn.resource_manager_pid, signal.SIGKILL)
        until(lambda: isinstance(driver.poll(handle), Running) and _is_away(driver, handle), "the crash")
        assert driver.read(handle, 0) is not None
        yarn.restart_resource_manager()
        assert driver.place.state(handle) == Running()
        latch.touch()
        entries += read_all(driver, handle)
    assert driver.poll(handle) == Ended(78)
    facts = {entry["fact"] for entry in entries if not isinstance(entry, str)}
    assert {"protected", "end"} <= facts
    assert any(f"yarn logs -applicationId {application}" in str(entry) for entry in entries)


def _is_away(driver, handle):
    return isinstance(driver._followed(handle).state, Unseen)


def test_a_driver_that_is_killed_in_yarn_has_ended_once_its_node_says_so(embedded_yarn, tmp_path, waits):
    driver = script_driver(embedded_yarn, tmp_path / "attempt", waits)
    handle = Handle.from_json(driver.submit(lambda _: None).to_json())
    until(lambda: pids(tmp_path), "the script")
    later = FolderDriver(AttemptFolder, YarnPlace(ResourceManager([embedded_yarn.resource_manager])))
    assert later.poll(handle) == Running()
    later.place.kill(handle)
    until(lambda: later.poll(handle) == Ended(-9, log_is_whole=False), "the proof")
    assert not any(map(is_alive, pids(tmp_path)))


def test_a_second_attempt_of_yarn_is_not_granted(embedded_yarn, tmp_path, waits):
    """Its end is not that of the first one, either."""
    settings = {"spark.yarn.maxAppAttempts": 2}
    driver = script_driver(embedded_yarn, tmp_path / "attempt", waits, settings)
    handle = driver.submit(lambda _: None)
    (pid,) = until(lambda: pids(tmp_path), "the script")
    os.kill(pid, signal.SIGKILL)
    manager = driver.place._manager
    until(lambda: manager.application(handle.facts["application"]).is_over, "the second attempt")
    files = (tmp_path / "attempt").glob("hello.*")
    hellos = [Hello.from_bytes(file.name, file.read_bytes()) for file in files]
    assert len(hellos) == 2
    (second,) = [hello for hello in hellos if hello.nonce != handle.facts["nonce"]]
    assert second.details["application_id"] == handle.facts["application"]
    assert "granted" in second.left
    assert pids(tmp_path) == [pid]
    until(lambda: driver.poll(handle) == Ended(-9, log_is_whole=False), "the proof")


def test_an_application_that_fails_before_a_hello_is_an_error_at_once(embedded_yarn, tmp_path):
    runner = "import sys; print('no such module', file=sys.stderr); sys.exit(3)"
    driver = script_driver(embedded_yarn, tmp_path / "attempt", "", runner=runner)
    with pytest.raises(NotSubmittedError, match=r"application_\d+_\d+ is FAILED: ") as raised:
        driver.submit(lambda _: None)
    assert "exitCode: 3" in str(raised.value)


def test_a_kill_before_a_hello_ends_what_was_submitted(embedded_yarn, tmp_path):
    runner = f"import pathlib, time; pathlib.Path({str(tmp_path)!r}, 'begun').touch(); time.sleep(600)"
    driver = script_driver(embedded_yarn, tmp_path / "attempt", "", runner=runner)

    def kill():
        until((tmp_path / "begun").exists, "the container")
        driver.killed.set()

    threading.Thread(target=kill, daemon=True).start()
    with pytest.raises(NotSubmittedError, match="asked to stop"):
        driver.submit(lambda _: None)
    tag = attempt_tag(driver.submission.files.url)
    until(
        lambda: [one.state for one in driver.place._manager.applications(tag)] == ["KILLED"], "its end"
    )


@pytest.mark.nightly
def test_a_driver_whose_node_is_lost_is_not_taken_for_dead(tmp_path, waits):
    settings = {
        "yarn.nm.liveness-monitor.expiry-interval-ms": 3000,
        "yarn.resourcemanager.nm.liveness-monitor.expiry-interval-ms": 3000,
    }
    with EmbeddedYarn(tmp_path / "yarn", settings) as yarn:
        driver = script_driver(yarn, tmp_path / "attempt", waits)
        handle = driver.submit(lambda _: None)
        (pid,) = until(lambda: pids(tmp_path), "the script")
        os.kill(yarn.node_manager_pid, signal.SIGKILL)
        try:
            manager = driver.place._manager
            until(lambda: manager.application(handle.facts["application"]).is_over, "the loss")
            assert is_alive(pid)
            state = driver.place.state(handle)
            assert isinstance(state, Unseen)
            assert "not prove that it has ended" in state.reason
            assert driver.poll(handle) == Running(), "its folder shows that it lives"
        finally:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.nightly
def test_yarn_ends_with_its_containers(tmp_path, waits):
    with EmbeddedYarn(tmp_path / "yarn") as yarn:
        script_driver(yarn, tmp_path / "attempt", waits).submit(lambda _: None)
        until(lambda: pids(tmp_path), "the script")
        processes = [yarn.resource_manager_pid, yarn.node_manager_pid, *pids(tmp_path)]
        assert all(map(is_alive, processes))
    until(lambda: not any(map(is_alive, processes)), "the end of YARN")
