"""A ``spark-submit`` ends with its task, also with one that is killed."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.submitters.launcher import Launcher
from airflow_occ_provider.submitters.processes import Flag, processes_of
from tests.support.observed import until
from tests.support.session_site import SITE

TASK = """
import os
from airflow_occ_provider.submitters.processes import Flag
from airflow_occ_provider.submitters.launcher import Launcher
Launcher().run(["sleep", "600"], os.environ, Flag())
"""


def test_its_lines_and_its_exit_code_are_kept():
    one = Launcher()
    command = ["sh", "-c", f"echo ${IDENTITY_VARIABLE}; echo two >&2; exit 3"]
    assert one.run(command, {**os.environ, IDENTITY_VARIABLE: SITE}, Flag()) == 3
    assert one.output.take(0) == [f"{SITE}\n", "two\n"]
    assert one.output.take(0) == []


def test_it_ends_when_the_task_is_asked_to_stop():
    killed = Flag()
    killed.set()
    identity = f"stopped-{os.getpid()}"
    environment = {**os.environ, IDENTITY_VARIABLE: identity}
    assert Launcher().run(["sh", "-c", "sleep 600; true"], environment, killed) < 0
    assert processes_of(identity) == []


def test_it_ends_with_a_task_that_is_killed():
    identity = f"killed-{os.getpid()}"
    task = subprocess.Popen(
        [sys.executable, "-c", TASK], env={**os.environ, IDENTITY_VARIABLE: identity}
    )
    until(lambda: [one for one in processes_of(identity) if one.name() == "sleep"], "its child")
    task.kill()
    task.wait()
    until(
        lambda: all(one.status() == psutil.STATUS_ZOMBIE for one in processes_of(identity)), "the ends"
    )
