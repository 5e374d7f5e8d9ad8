"""How long a driver may take until its job begins: on the worker, and in its cluster."""

from __future__ import annotations

import os
import secrets
import sys
from datetime import timedelta

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.start_limit import StartLimit, late_start
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running
from airflow_occ_provider.errors import ConfigurationError, DriverNotStartedError
from airflow_occ_provider.submitters.processes import marked
from airflow_occ_provider.submitters.spark_submit import SparkSubmit
from tests.unit.test_private_folder import PROTECTED, offer_in

AT_ONCE = StartLimit.of(timedelta(0))
HANGS = "print('resolving', flush=True); import time; time.sleep(600)"


def test_a_task_without_a_limit_of_its_own_has_the_defaults():
    assert StartLimit.of(None) == StartLimit(timedelta(minutes=30), timedelta(hours=12))
    assert StartLimit.of(timedelta(1)) == StartLimit(timedelta(1), timedelta(1))
    assert late_start(59.9, timedelta(minutes=1)) is None
    assert late_start(60, timedelta(minutes=1)).outcome is Outcome.NOT_STARTED


def started(folder, job, limit):
    """Run a program as a driver of this host until it ends, or is ended."""
    key, printed = f"late-{secrets.token_hex(6)}", []
    environment = {**os.environ, IDENTITY_VARIABLE: key}
    submitter = SparkSubmit([sys.executable, "-c", job], environment, offer_in(folder))
    driver = Driver(submitter, printed.append, start_limit=limit)
    driver.run(key, [])
    assert marked(key) == []
    return driver, "".join(printed)


def test_a_spark_submit_that_hangs_is_ended_and_the_log_says_why(tmp_path):
    driver, printed = started(tmp_path, HANGS, AT_ONCE)
    assert driver.stop.outcome is Outcome.NOT_STARTED
    assert "Ending the driver: the job has not begun within 0:00:00, the start_timeout" in printed


class OnWorker:
    """A driver of this host, of which an entry is read at the first look."""

    outlives_task = False

    def __init__(self, entry):
        self.batches, self.ended = [[entry], [], []], False

    def poll(self, _):
        return Running() if self.batches else Ended(-15 if self.ended else 0)

    def read(self, *_):
        return self.batches.pop(0) if self.batches else None

    def end(self, _):
        self.batches, self.ended = [], True


@pytest.mark.parametrize(
    ("entry", "is_late"),
    [("resolving\n", True), (PROTECTED, False), ({"fact": "not_protected", "reason": "x"}, False)],
)
def test_a_driver_on_the_worker_is_late_only_while_its_runner_has_reported_nothing(entry, is_late):
    submitter = OnWorker(entry)
    driver = Driver(submitter, handle=Handle("spark_submit", "a"), start_limit=AT_ONCE)
    driver.follow([])
    assert bool(driver.stop) is is_late


def test_a_task_whose_spark_submit_hangs_fails_and_is_retried(scripted):
    scripted.unprotected(("hang",))
    with pytest.raises(DriverNotStartedError, match="has not begun within 0:00:00") as raised:
        scripted.run(start_timeout=0)
    assert (raised.value.retry, raised.value.committed) == (True, False)
    with pytest.raises(ConfigurationError, match="start_timeout"):
        scripted.task(start_timeout=-1)
