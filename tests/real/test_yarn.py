"""Drivers in a real YARN: read live, killed, found by their key, ended only by proof."""

from __future__ import annotations

import os
import shlex
import signal
import threading

import psutil
import pytest

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.embedded.spark import spark_environment
from airflow_occ_provider.embedded.yarn import EmbeddedYarn
from airflow_occ_provider.errors import NotSubmittedError
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.listing import RunningApplications
from airflow_occ_provider.submitters.yarn.resource_manager import ResourceManager
from airflow_occ_provider.submitters.yarn.submission_conf import COMMON_TAG
from tests.observed import until
from tests.yarn_script import script_cluster

pytestmark = [pytest.mark.real, pytest.mark.yarn]

PATIENCE_S = 240
LINES = 20_000
JOB = f"""
import sys, time
from pathlib import Path
from pyspark.sql import SparkSession

print("said to stdout", flush=True)
print("said to stderr", file=sys.stderr, flush=True)
spark = SparkSession.builder.getOrCreate()
spark._jvm.System.err.println("said by the JVM")
while not Path(sys.argv[1]).exists():
    time.sleep(0.1)
for number in range({LINES}):
    print(f"line {{number}}")
print("the end", end="")
sys.exit(78)
"""
WAITS = "echo $$ > {folder}/pid; echo begun; while true; do sleep 0.1; done\n"


def read_until(one, handle, *wanted):
    lines = []
    until(lambda: lines.extend(one.read(handle, 0.1)) or set(wanted) <= set(lines), wanted)
    return lines


def read_all(one, handle):
    lines = []
    until(lambda: (found := one.read(handle, 0.1)) is None or lines.extend(found), "the end of the log")
    return lines


def is_alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def waiting(tmp_path):
    script = tmp_path / "waits.sh"
    script.write_text(WAITS.format(folder=tmp_path))
    return script


def test_a_spark_driver_is_followed_beyond_a_crash_of_the_resource_manager(embedded_yarn, tmp_path):
    yarn, latch, job, key = embedded_yarn, tmp_path / "latch", tmp_path / "job.py", "Spark's driver"
    job.write_text(JOB)

    def command(conf):
        given = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        return ["spark-submit", *given, str(job), str(latch)]

    def open_log(path):
        return (yarn.aggregated_logs / path).open("rb")

    recorded = []
    environment = yarn.environment(spark_environment(tmp_path / "spark"))
    one = YarnCluster(
        ResourceManager([yarn.resource_manager]),
        command,
        {"spark.yarn.tags": "mine"},
        environment,
        open_log,
    )
    handle = one.submit(key, recorded.append)
    assert recorded == [handle]
    lines = read_until(one, handle, "said to stdout\n", "said to stderr\n", "said by the JVM\n")
    assert "mine" in one.manager.application(handle.facts["application"]).tags
    assert one.find(key) == handle
    os.kill(yarn.resource_manager_pid, signal.SIGKILL)
    assert isinstance(until(lambda: not isinstance(s := one.poll(handle), Running) and s, "x"), Unseen)
    assert one.read(handle, 0) == []
    yarn.restart_resource_manager()
    assert one.poll(handle) == Running()
    assert one.find(key) == handle
    latch.touch()
    lines += read_all(one, handle)
    assert [line for line in lines if line.startswith("line ")] == [f"line {n}\n" for n in range(LINES)]
    assert [lines.count(one) for one in ("said to stdout\n", "the end\n")] == [1, 1]
    assert one.poll(handle) == Ended(78)
    assert one.find(key) is None


def test_a_later_try_finds_the_driver_kills_it_and_two_submissions_differ(embedded_yarn, waiting):
    first = script_cluster(embedded_yarn, waiting)
    blind = script_cluster(embedded_yarn, waiting)
    blind._refuse_twin = lambda _: None  # as two processes that look at the same moment
    handles = [one.submit("key-1", lambda _: None) for one in (first, blind)]
    assert handles[0].facts["application"] != handles[1].facts["application"]
    later = script_cluster(embedded_yarn, waiting)
    with pytest.raises(NotSubmittedError, match="is alive"):
        later.submit("key-1", lambda _: None)
    found = later.find("key-1")
    assert found in handles
    assert Handle.from_json(found.to_json()) == found
    assert later.find("key") is None  # a tag is compared as a whole
    read_until(first, handles[0], "begun\n")
    names = {handle.facts["application"] for handle in handles}
    assert names <= {one.id for one in later.manager.running(COMMON_TAG)}
    shared = script_cluster(embedded_yarn, waiting, running=RunningApplications(later.manager, 600.0))
    assert shared.poll(handles[0]) == Running()
    for handle in handles:
        later.end(handle)
        until(lambda handle=handle: later.poll(handle) == Ended(-9), "the kill")
    assert later.find("key-1") is None
    assert not names & {one.id for one in later.manager.running(COMMON_TAG)}
    assert read_all(later, handles[0]) == ["begun\n"]


def test_a_driver_whose_node_is_lost_is_not_taken_for_dead(tmp_path, waiting):
    settings = {
        "yarn.nm.liveness-monitor.expiry-interval-ms": 3000,
        "yarn.resourcemanager.nm.liveness-monitor.expiry-interval-ms": 3000,
    }
    with EmbeddedYarn(tmp_path / "yarn", settings) as yarn:
        one = script_cluster(yarn, waiting, end_s=1.0)
        handle = one.submit("key-2", lambda _: None)
        read_until(one, handle, "begun\n")
        pid = int((tmp_path / "pid").read_text())
        os.kill(yarn.node_manager_pid, signal.SIGKILL)
        try:
            until(lambda: one.manager.application(handle.facts["application"]).is_over, "the loss")
            assert is_alive(pid)
            state = one.poll(handle)
            assert isinstance(state, Unseen)
            assert "does not prove that the driver has ended" in state.reason
            assert one.find("key-2") is None
            assert one.read(handle, 0) == []
        finally:
            os.kill(pid, signal.SIGKILL)


def test_yarn_ends_with_its_containers(tmp_path, waiting):
    with EmbeddedYarn(tmp_path / "yarn") as yarn:
        one = script_cluster(yarn, waiting)
        read_until(one, one.submit("key-3", lambda _: None), "begun\n")
        pids = [yarn.resource_manager_pid, yarn.node_manager_pid, int((tmp_path / "pid").read_text())]
        assert all(map(is_alive, pids))
    until(lambda: not any(map(is_alive, pids)), "the end of YARN")


def cluster(yarn, *command, **more):
    return YarnCluster(ResourceManager([yarn.resource_manager]), lambda _: command, **more)


def test_a_spark_submit_without_an_application_is_named_with_its_last_lines(embedded_yarn):
    one = cluster(embedded_yarn, "sh", "-c", "echo no such class; exit 5")
    with pytest.raises(NotSubmittedError, match=r"exit code 5, [^$]*\nno such class\n"):
        one.submit("key-4", lambda _: None)


def test_a_kill_ends_spark_submit_and_what_it_submitted(embedded_yarn, waiting, tmp_path):
    submitted, one = tmp_path / "submitted", script_cluster(embedded_yarn, waiting)
    hangs = cluster(embedded_yarn)
    hangs.command = lambda conf: (
        *("sh", "-c"),
        f"{shlex.join(one.command(conf))}; touch {submitted}; exec sleep 6000",
    )

    def kill():
        until(submitted.exists, "the submission")
        hangs.killed.set()

    threading.Thread(target=kill, daemon=True).start()
    handle = hangs.submit("key-5", lambda _: None)
    read_all(hangs, handle)
    assert hangs.poll(handle).exit_code == -9


def test_a_later_try_ends_a_spark_submit_that_was_left(embedded_yarn, tmp_path):
    pid = tmp_path / "pid"
    hangs = cluster(embedded_yarn, "sh", "-c", f"echo ${IDENTITY_VARIABLE} > {pid}; exec sleep 600")
    failed = []

    def submit():
        with pytest.raises(NotSubmittedError) as refused:
            hangs.submit("key-6", lambda _: None)
        failed.append(refused.value)

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    until(pid.exists, "the start of spark-submit")
    assert cluster(embedded_yarn).find("key-6") is None
    thread.join(PATIENCE_S)
    assert "exit code -" in str(failed[0])
    assert pid.read_text() == "key-6\n"
