"""How long a driver may take until its job begins: on the worker, and in its cluster."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from datetime import timedelta

import pytest

from airflow_occ_provider.attempts.driver import Driver
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.start_limit import StartLimit, late_start
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Traits
from airflow_occ_provider.attempts.waits import DriverWait
from airflow_occ_provider.errors import ConfigurationError, DriverNotStartedError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.waits import _trigger
from airflow_occ_provider.submitters.processes import marked
from airflow_occ_provider.submitters.spark_submit import SparkSubmit
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers import driver as trigger_module
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


class Elsewhere:
    """A driver in a cluster that says whether a process of it has begun; its log is out of reach."""

    traits = Traits("live", "findable", outlives_task=True, end_is_final=True, exit_code=True)

    def __init__(self, *, is_waiting, looks=3):
        self.is_waiting, self.looks, self.ended = is_waiting, looks, False

    def poll(self, _):
        return Ended(-15 if self.ended else 0) if self._is_over else Running(self.is_waiting)

    def read(self, *_):
        self.looks -= 1
        return None if self._is_over else []

    def end(self, _):
        self.ended = True

    @property
    def _is_over(self):
        return self.ended or self.looks < 0


class OnWorker(Elsewhere):
    """A driver of this host, of which an entry is read at the first look."""

    traits = SparkSubmit.traits

    def __init__(self, entry):
        super().__init__(is_waiting=False)
        self.entry = entry

    def read(self, *_):
        is_first = self.looks == 3
        return [self.entry] if super().read() == [] and is_first else super().read()


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


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_driver_elsewhere_is_late_only_while_its_cluster_has_not_begun_it(is_waiting):
    submitter = Elsewhere(is_waiting=is_waiting)
    driver = Driver(submitter, handle=Handle("yarn", "a"), start_limit=AT_ONCE)
    driver.follow([])
    assert bool(driver.stop) is is_waiting


@pytest.mark.parametrize(("is_waiting", "limit"), [(True, 60), (False, 60), (True, None)])
def test_the_trigger_ends_it_by_the_same_rule(tmp_path, monkeypatch, is_waiting, limit):
    submitter = Elsewhere(is_waiting=is_waiting)
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(trigger_module, "follower", lambda _, **__: submitter)
    monkeypatch.setattr(trigger_module, "_POLL_S", 0.01)
    task = HudiWriteOperator(task_id="t", application="a.py", table=str(tmp_path), start_timeout=limit)
    an_hour_ago = round(time.time() * 1000) - 3_600_000
    trigger, _ = _trigger(task, DriverWait(Handle("yarn", "a"), HeartbeatRule(), an_hour_ago))
    event = asyncio.run(asyncio.wait_for(anext(trigger.run()), 60)).payload
    is_late = is_waiting and limit is not None
    assert submitter.ended is is_late
    assert (event["stop"] or {}).get("outcome") == ("not_started" if is_late else None)
