"""How long a driver may take until its job begins: on the worker, and in its cluster."""

from __future__ import annotations

import os
import secrets
import sys
from datetime import timedelta

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.site import StartLimit, late_start
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE, Submission
from airflow_occ_provider.errors import ConfigurationError, NotSubmittedError
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.processes import processes_of
from tests.support.local_drivers import local_driver

HANGS = "print('resolving', flush=True); import time; time.sleep(600)"


def test_a_task_without_a_limit_of_its_own_has_the_defaults():
    assert StartLimit.of(None) == StartLimit(timedelta(minutes=30), timedelta(hours=12))
    assert StartLimit.of(timedelta(1)) == StartLimit(timedelta(1), timedelta(1))
    assert late_start(59.9, timedelta(minutes=1)) == ""
    assert "not begun within 0:01:00" in late_start(60, timedelta(minutes=1))


def test_a_spark_submit_that_hangs_is_ended_and_its_lines_are_shown(tmp_path):
    key, printed = f"late-{secrets.token_hex(6)}", []
    environment = {**os.environ, IDENTITY_VARIABLE: key}
    offer = Submission("run_job.py", AttemptFolder(str(tmp_path)), b"{}")
    submitter = local_driver([sys.executable, "-c", HANGS], environment, offer)
    submitter.start_limit = timedelta(0)
    driver = Driver(submitter, printed.append)
    with pytest.raises(NotSubmittedError, match="the job has not begun within 0:00:00, the start_tim"):
        driver.run([])
    assert processes_of(key) == []
    assert driver.was_refused


def test_what_spark_submit_prints_is_shown_before_a_driver_is_there(tmp_path):
    printed, environment = [], {**os.environ, IDENTITY_VARIABLE: f"early-{secrets.token_hex(6)}"}
    offer = Submission("run_job.py", AttemptFolder(str(tmp_path)), b"{}")
    driver = Driver(
        local_driver(["sh", "-c", "echo resolving; exit 3"], environment, offer), printed.append
    )
    with pytest.raises(NotSubmittedError, match="exit code 3 before the job began"):
        driver.run([])
    assert printed == ["resolving\n"]


def test_a_task_whose_spark_submit_hangs_fails_and_is_retried(scripted):
    scripted.unprotected(("hang",))
    with pytest.raises(NotSubmittedError, match="has not begun within 0:00:00") as raised:
        scripted.run(start_timeout=0)
    assert (raised.value.retry, raised.value.committed) == (True, False)
    with pytest.raises(ConfigurationError, match="start_timeout"):
        scripted.task(start_timeout=-1)
