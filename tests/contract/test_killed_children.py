"""A driver that a ``BashOperator`` has started on the worker, and whose processes are killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, BaseOperator

from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Ended, Running, Unseen
from airflow_occ_provider.places.via import ViaPlace, operator_path
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters import followed_driver
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.place import Place
from airflow_occ_provider.via import ARGUMENTS, RUNNER
from tests.contract import folder_job

PATIENCE_S = 120
DRIVER = f"{sys.executable} {RUNNER} {ARGUMENTS} 'sleep 600'"


@pytest.fixture
def by_bash(tmp_path, monkeypatch):
    """Have a command start a driver; return its submitter, its handle and its process."""
    monkeypatch.setattr(Place, "request_s", 0.5)
    monkeypatch.setattr(Place, "period_s", 0.0)
    monkeypatch.setattr(followed_driver, "_PERIODS", ((1e9, 0.1),))
    groups = []

    def start(command):
        with DAG("d"):
            task = BaseOperator(task_id="t")
        context = {"task": task, "ti": SimpleNamespace(), "dag_run": None}
        place = ViaPlace(operator_path(BashOperator), {"bash_command": command}, task, context)
        folder = AttemptFolder(str(tmp_path / "attempt"))
        folder.write("run_job.py", Path(folder_job.__file__).read_bytes())
        offer = Submission(f"{folder.url}/run_job.py", folder, b"{}")
        submitter = FolderDriver(AttemptFolder, place, offer)
        handle = submitter.submit(lambda _: None)
        hello = json.loads(folder.read(f"hello.{handle.facts['nonce']}"))
        groups.append(os.getpgid(int(hello["details"]["jvm_pid"])))
        return submitter, handle, groups[-1]

    yield start
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


@pytest.mark.parametrize("command", [f"exec {DRIVER}", f"true; {DRIVER}; exit $?"])
def test_the_end_of_a_killed_child_is_known_without_its_silence(by_bash, command):
    submitter, handle, group = by_bash(command)
    assert submitter.poll(handle) == Running()
    os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while submitter.read(handle, 0.05) is not None:
        assert time.monotonic() < deadline
    assert submitter.poll(handle) == Ended(-signal.SIGKILL, log_is_whole=False)
    assert "says its place" in submitter._followed(handle).proof.evidence


def test_the_end_of_a_process_that_is_no_child_proves_nothing(by_bash):
    submitter, handle, group = by_bash(f"setsid --fork {DRIVER} > /dev/null 2>&1")
    assert isinstance(submitter.place.state(handle), Unseen)
    os.killpg(group, signal.SIGKILL)
    assert isinstance(submitter.place.state(handle), Unseen)
