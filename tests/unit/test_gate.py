"""The gate and the survivors, with real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil
import pytest

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.in_driver import run_job
from airflow_occ_provider.submitters import gate, processes
from airflow_occ_provider.submitters.processes import (
    DriverProcess,
    child_process,
    end_processes,
    processes_of,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals are Linux's")
PARENT = """
import os, subprocess, sys, time
gate, opened, *command = sys.argv[1:]
child = subprocess.Popen([sys.executable, gate, str(os.getpid()), *command], stdin=subprocess.PIPE)
print(child.pid, flush=True)
if opened == "open":
    child.stdin.write(b"x"); child.stdin.close()
time.sleep(60)
"""


def start(*command, parent=None):
    return subprocess.Popen(
        [sys.executable, gate.__file__, str(parent or os.getpid()), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def gone(pid):
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_nothing_runs_before_the_word_is_given(tmp_path):
    witness = tmp_path / "ran"
    driver = start("sh", "-c", f"touch {witness}; cat; echo $$")
    who = DriverProcess.of(driver.pid)
    time.sleep(0.3)
    assert not witness.exists()
    out, _ = driver.communicate(b"\n", timeout=10)
    assert witness.exists()
    assert int(out) == driver.pid  # and `cat` found nothing at its standard input
    assert (who.pid, who.started > 0) == (driver.pid, True)


def test_a_gate_that_is_never_opened_starts_nothing(tmp_path):
    driver = start("touch", str(tmp_path / "ran"))
    driver.communicate(timeout=10)
    assert driver.returncode == gate.EXIT_SHUT
    assert not (tmp_path / "ran").exists()


def test_a_parent_that_is_gone_already_starts_nothing(tmp_path):
    driver = start("touch", str(tmp_path / "ran"), parent=1)
    driver.communicate(b"\n", timeout=10)
    assert driver.returncode == gate.EXIT_SHUT
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("opened", ["open", "shut"])
def test_a_driver_ends_with_its_parent(opened):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, gate.__file__, opened, "sleep", "60"],
        stdout=subprocess.PIPE,
        text=True,
    )
    driver = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.kill()
    parent.communicate(timeout=10)
    assert gone(driver)


def test_survivors_are_found_in_whatever_session_they_are_and_stopped_ones_too():
    identity = f"test-{os.getpid()}"
    environment = {**os.environ, IDENTITY_VARIABLE: identity}
    wrapper = subprocess.Popen(["setsid", "--fork", "sleep", "61"], env=environment)
    wrapper.wait()
    neighbour = subprocess.Popen(["sleep", "62"], env={**os.environ, IDENTITY_VARIABLE: "other"})
    stopped = subprocess.Popen(["sleep", "63"], env=environment)
    stopped.send_signal(19)
    try:
        deadline = time.monotonic() + 60  # while one becomes another program it shows no environment
        while len(processes_of(identity)) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert end_processes(identity) == []
        assert neighbour.poll() is None
        assert processes_of(identity) == []
    finally:
        neighbour.kill()
        neighbour.wait()
        stopped.wait(timeout=10)


@pytest.fixture
def child():
    process = subprocess.Popen(["sh", "-c", "sleep 61; true"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_a_driver_is_a_child_and_gone_once_it_has_ended(child):
    process = child_process(run_job.details_of_process(child.pid))
    assert process.pid == child.pid
    assert not process.is_gone
    child.kill()
    child.wait()
    assert process.is_gone
    assert child_process(run_job.details_of_process(os.getpid())) is None, "it has to be a child"


@pytest.mark.parametrize(
    "wrong",
    [
        {"jvm_started": "1"},
        {"boot": "of another host"},
        {"pid_namespace": "pid:[1]"},
        {"jvm_pid": "1"},
        {"jvm_pid": "9" * 18},
        {"jvm_pid": "../1"},
        {"jvm_pid": ""},
    ],
)
def test_a_driver_of_which_anything_differs_is_no_child(child, wrong):
    assert child_process({**run_job.details_of_process(child.pid), **wrong}) is None


def test_what_cannot_be_read_has_not_ended(child, monkeypatch):
    process = child_process(run_job.details_of_process(child.pid))

    def too_many(_):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(processes, "_start_ticks", too_many)
    assert not process.is_gone


def test_a_driver_whose_exit_code_nothing_collects_has_ended(child):
    process = child_process(run_job.details_of_process(child.pid))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert process.is_gone
