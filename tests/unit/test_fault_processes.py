"""What the fault rigs take for a driver among the processes of this host."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

import pytest

from tests.faults.processes import WRITES, drivers


@pytest.fixture
def start(tmp_path):
    """Start a process named ``java`` with a variable and arguments; it lasts as long as the test."""
    java = shutil.copy("/bin/sh", tmp_path / "java")
    with contextlib.ExitStack() as running:

        def started(table, *arguments):
            process = subprocess.Popen(
                [java, "-c", "echo; read line", *arguments],
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
