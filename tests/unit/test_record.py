from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_occ_provider.attempts.record import (
    NOTHING_BEFORE,
    RECORD_KEY,
    AttemptRecord,
    QueueEntry,
    TableBefore,
    TaskRecord,
    TryKey,
    Waiting,
)
from airflow_occ_provider.errors import CommitStateUnknownError, StateStoreError
from airflow_occ_provider.submitters.processes import DriverProcess
from airflow_occ_provider.task import run as task_run
from airflow_occ_provider.task.run import open_journal
from tests.support.local_drivers import handle_of
from tests.support.task_state import Instance, Store

DRIVER = handle_of(DriverProcess(42, 1000, "host", "boot", "pid:[1]"))
SINCE = TableBefore(frozenset({"1", "2"}), 7)
ATTEMPT = AttemptRecord(
    1,
    14,
    "i",
    "/t",
    5,
    DRIVER,
    "application_1_2",
    ("20261121092507982",),
    "exit code 1",
    6,
    True,
    "killed",
)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(store):
    def start(number=1, max_tries=14):
        return open_journal({"task_state_store": store, "ti": Instance(number, max_tries)})

    return start


def test_a_record_comes_back_from_json():
    record = TaskRecord(
        "i", "d", SINCE, ("h",), TryKey(1, 14), False, (ATTEMPT,), Waiting("beating", 7, ("1",))
    )
    assert TaskRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    assert TaskRecord.from_json(TaskRecord("i").to_json()) == TaskRecord("i")


def test_an_attempt_is_replaced_by_its_later_state():
    record = TaskRecord().with_attempt(ATTEMPT).with_attempt(replace(ATTEMPT, settled=True))
    assert [attempt.settled for attempt in record.attempts] == [True]
    assert record.unsettled == ()


def test_a_retry_keeps_the_identity_of_an_attempt(start):
    first = start(1)
    first.begin("d", SINCE)
    first.keep(ATTEMPT)
    kept = start(2).record
    assert kept.identity == first.record.identity
    assert (kept.digest, kept.since) == ("d", SINCE)


def test_the_identity_of_a_driver_that_is_no_attempt_is_stored_before_it_starts(start, store):
    first = start(1)
    first.store_identity()
    assert store[RECORD_KEY]["identity"] == first.record.identity
    assert start(1).record.identity == first.record.identity


def test_a_change_that_can_wait_is_stored_with_the_next_one(start, store):
    first = start(1)
    first.begin("d", NOTHING_BEFORE)
    assert store == {}
    first.set_request(QueueEntry("q", "asked", 7, 1))
    assert store[RECORD_KEY]["digest"] == "d"
    first.drop_request(at_once=False)
    assert store[RECORD_KEY]["place"]
    first.succeed()
    assert not store[RECORD_KEY].get("place")


def test_a_task_cleared_after_success_is_other_work(start):
    first = start(1)
    first.begin("d", NOTHING_BEFORE)
    first.succeed()
    assert start(2, max_tries=15).record.identity != first.record.identity


def test_a_retry_of_a_try_that_was_killed_after_its_last_record_is_the_same_work(start):
    first = start(1)
    first.succeed()
    assert start(2).record.identity == first.record.identity


def test_a_task_cleared_after_failure_is_the_same_work(start):
    first = start(1)
    first.begin("d", NOTHING_BEFORE)
    first.keep(ATTEMPT)
    assert start(2, max_tries=15).record.identity == first.record.identity


def test_a_try_that_was_deferred_goes_on_with_its_record(start):
    first = start(1)
    first.wait("beating", ("1",), 100)
    resumed = start(1)
    assert resumed.record.identity == first.record.identity
    assert resumed.wait("still beating", ("1",), 200).since_ms == 100


def test_the_work_is_named_by_its_first_attempt(start):
    run = start(1)
    run.begin("d", SINCE)
    run.begin("e", NOTHING_BEFORE)
    assert (run.record.digest, run.record.since) == ("d", SINCE)


def test_other_arguments_are_signed_anew_but_the_old_signature_still_counts(start):
    run = start(1)
    run.begin("d", SINCE)
    run.keep(replace(ATTEMPT, identity=run.record.identity))
    old = run.record.identity
    run.abandon("e")
    record = start(2).record
    assert record.identity != old
    assert record.identities == (record.identity, old)
    assert (record.digest, record.since, len(record.attempts)) == ("e", SINCE, 1)
    assert record.instants_in("/t") == ATTEMPT.instants
    assert (record.has_seen("/t"), record.has_seen("/other")) == (True, False)
    assert record.instants_in("file:///t/") == ATTEMPT.instants


def test_what_other_arguments_were_about_to_write_does_not_count(start):
    run = start(1)
    run.begin("d", SINCE)
    run.give_way(("p=1",), ())
    run.escalate(("p=1",))
    run.abandon("e")
    record = start(2).record
    assert (record.gave_way, record.escalation, record.is_first_loss) == ((), None, True)


def test_what_is_wanted_again_does_not_count_older_commits(start):
    first = start(1)
    first.begin("d", SINCE)
    first.keep(replace(ATTEMPT, identity=first.record.identity))
    first.succeed()
    record = start(2, max_tries=15).record
    assert record.identities == (record.identity,)
    assert (record.since, len(record.attempts), record.instants_in("/t")) == (None, 1, ())


def test_a_wait_that_was_given_up_begins_anew(start):
    run = start(1)
    run.wait("beating", (), 100)
    run.stop_waiting()
    assert run.wait("beating", (), 900).since_ms == 900


def test_the_oldest_attempts_are_dropped_but_none_that_is_unsettled():
    record = TaskRecord("i")
    for number in range(60):
        record = record.with_attempt(replace(ATTEMPT, try_number=number, settled=number != 3))
    kept = [one["try_number"] for one in record.to_json()["attempts"]]
    assert kept == [3, *range(20, 60)]


def test_tries_that_ended_without_a_record_are_counted_since_the_last_clear():
    died = replace(ATTEMPT, end="", outcome="", log_read=False)
    tries = (
        replace(died, try_number=1, max_tries=9),  # before the clear
        replace(died, try_number=2),
        replace(died, try_number=3, end="found ended", settled=True),
        replace(died, try_number=4, end="ended by try 5"),
        replace(died, try_number=5, end="signal 9"),  # seen by its own try
        replace(died, try_number=6, outcome="killed"),
        replace(died, try_number=7, driver=None),  # never started
        replace(died, try_number=8),  # the try that asks
    )
    assert TaskRecord(attempts=tries).unexplained(TryKey(8, 14)) == (2, 3, 4)


def test_a_store_that_was_busy_is_asked_again(start, store, monkeypatch):
    monkeypatch.setattr(task_run, "_PAUSE_S", 0)
    store.refuses = 2
    run = start(1)
    run.keep(ATTEMPT)
    assert store[RECORD_KEY]["identity"] == run.record.identity


def test_a_store_that_refuses_stops_the_try(start, store, monkeypatch):
    monkeypatch.setattr(task_run, "_PAUSE_S", 0)
    run = start(1)
    store.refuses = 3
    with pytest.raises(StateStoreError) as caught:
        run.keep(ATTEMPT)
    assert caught.value.retry


def test_a_store_that_cannot_be_asked_stops_the_try_too(start, store, monkeypatch):
    monkeypatch.setattr(task_run, "_PAUSE_S", 0)
    monkeypatch.setattr(Store, "get", lambda *_: (_ for _ in ()).throw(EOFError("socket closed")))
    with pytest.raises(StateStoreError, match="did not get"):
        start(1)


@pytest.mark.parametrize("kept", [{"identity": "i"}, {"format": 2}, {"format": 1}])
def test_a_record_of_another_release_is_no_record(start, store, kept):
    store[RECORD_KEY] = kept
    with pytest.raises(CommitStateUnknownError, match=RECORD_KEY):
        start(1)


def test_without_a_store_a_run_still_works():
    assert open_journal({"ti": Instance(1, 0)}).record.identity
