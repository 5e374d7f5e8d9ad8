"""An attempt that is recorded as it goes, while Airflow's state store is away."""

from __future__ import annotations

import logging

import pytest

from airflow_occ_provider.attempts import attempt as attempt_module
from airflow_occ_provider.attempts.attempt import AttemptRecorder
from airflow_occ_provider.errors import StateStoreError
from airflow_occ_provider.submitters.processes import DriverProcess
from airflow_occ_provider.task import run as task_run
from airflow_occ_provider.task.run import open_journal
from tests.support.hand_made_tables import T0, T1
from tests.support.local_drivers import handle_of
from tests.support.task_state import Instance, Store

DRIVER = handle_of(DriverProcess(42, 0, "host", "boot", "pid:[1]"))
AWAY = 10**6


class PublishingInstance(Instance):
    """A task instance that records its instants."""

    kept = ()

    def xcom_push(self, key, value):
        self.kept = value


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is moved."""
    now = [0.0]
    monkeypatch.setattr(attempt_module, "_monotonic", lambda: now[0])
    monkeypatch.setattr(task_run, "_PAUSE_S", 0)
    return now


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def attempt(store, clock):
    ti = PublishingInstance(1, 14)
    recorder = AttemptRecorder(
        open_journal({"task_state_store": store, "ti": ti}), "/t", logging.getLogger("t")
    )
    recorder.started(DRIVER)
    return recorder


def kept(store):
    (one,) = store["hudi_write"]["attempts"]
    return one["instants"]


def test_an_instant_that_cannot_be_recorded_is_recorded_later(attempt, store, clock, caplog):
    store.refuses = AWAY
    attempt.requested(T0)
    assert f"instant {T0} is not recorded yet" in caplog.text
    assert kept(store) == []
    store.refuses = 0
    attempt.feed("any")
    assert kept(store) == []
    clock[0] += 60
    attempt.feed("any")
    assert kept(store) == [T0]
    attempt.requested(T1)
    assert kept(store) == [T0, T1]


def test_a_store_that_stays_away_is_not_asked_for_every_line(attempt, store, clock):
    store.refuses = AWAY
    attempt.requested(T0)
    asked = store.refuses
    for _ in range(5):
        attempt.feed("any")
    assert store.refuses == asked
    clock[0] += 60
    attempt.feed("any")
    assert store.refuses == asked - 3
    store.refuses = 0
    attempt.ended(0, log_read=True)
    assert kept(store) == [T0]


def test_a_driver_that_cannot_be_recorded_never_starts(store, clock):
    run = open_journal({"task_state_store": store, "ti": PublishingInstance(1, 14)})
    store.refuses = AWAY
    with pytest.raises(StateStoreError):
        AttemptRecorder(run, "/t", logging.getLogger("t")).started(DRIVER)


REQUEST = "x INFO ActiveTimelineV2: Creating a new instant [==>{}__commit__REQUESTED]"


def test_a_process_that_reads_the_end_of_a_log_only_records_what_is_new(attempt, store):
    attempt.feed(REQUEST.format(T0))
    again = AttemptRecorder(attempt._run, "/t", logging.getLogger("t"), attempt._attempt)
    again.feed(REQUEST.format(T1))
    assert kept(store) == [T0, T1]


def test_an_instant_that_another_writer_had_first_is_not_recorded(attempt, store):
    attempt.feed(REQUEST.format(T0))
    attempt.feed(REQUEST.format(T1))
    attempt.feed(
        f"Caused by: java.io.IOException: /t/.hoodie/timeline/{T1}.commit.requested already exists"
    )
    assert kept(store) == [T0]
