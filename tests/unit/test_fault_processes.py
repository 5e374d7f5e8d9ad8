"""What the fault rigs take for a driver among the processes of this host."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

import psutil
import pytest

from airflow_occ_provider.driver.contract import GRANT, Grant, Hello
from airflow_occ_provider.storage.attempt_folder import HIDDEN
from tests.faults.processes import WRITES, drivers, granted


@pytest.fixture
def start(tmp_path):
    """Start a process named ``java`` with a variable and arguments; it lasts as long as the test."""
    java = shutil.copy("/bin/sh", tmp_path / "java")
    with contextlib.ExitStack() as running:

        def started(table, *arguments, command="echo; read line"):
            process = subprocess.Popen(
                [java, "-c", command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, WRITES: str(table)},
            )
            running.callback(process.communicate)
            process.stdout.readline()
            return process.pid

        yield started


def test_a_jvm_that_a_driver_has_started_is_no_driver(start, tmp_path):
    pid = start(tmp_path / "trips", "org.apache.spark.deploy.SparkSubmit", "/attempt/run_job.py")
    start(tmp_path / "trips", "org.openjdk.jol.vm.sa.AttachMain")

    assert [process.pid for process in drivers(tmp_path / "trips")] == [pid]


def test_a_copy_of_a_driver_that_is_to_be_another_program_is_no_driver(start, tmp_path):
    pid = start(tmp_path / "trips", "/attempt/run_job.py", command="(echo; read line; true); true")
    (copy,) = psutil.Process(pid).children()
    assert copy.cmdline() == psutil.Process(pid).cmdline()

    assert [process.pid for process in drivers(tmp_path / "trips")] == [pid]


@pytest.mark.parametrize(("announced_s", "is_granted"), [(10, True), (-10, False)])
def test_a_driver_that_is_started_after_the_granted_one_is_not_granted(
    start, tmp_path, announced_s, is_granted
):
    folder = tmp_path / HIDDEN / "trips" / "identity" / "attempt"
    folder.mkdir(parents=True)
    (folder / GRANT).write_bytes(Grant("nonce", "digest").to_bytes())
    hello = folder / Hello("nonce").name
    hello.touch()
    pid = start(tmp_path / "trips", "/attempt/run_job.py", f"file://{folder}")
    begun_s = psutil.Process(pid).create_time()
    os.utime(hello, (begun_s + announced_s,) * 2)

    assert [process.pid for process in granted(tmp_path / "trips")] == [pid] * is_granted
