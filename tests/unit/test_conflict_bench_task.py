"""The task of ``tests.bench.conflict`` without a scheduler: tries, deferrals, slots and records."""

from __future__ import annotations

from threading import Semaphore
from types import SimpleNamespace

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import TaskDeferred
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.errors import WriteConflictError
from tests.bench.conflict import ours
from tests.bench.conflict.arms import ARMS
from tests.bench.conflict.events import Job
from tests.bench.conflict.place import Place

JOB = Job("w", ("p0",), 1.0)


class Fires(BaseTrigger):
    """A trigger that fires at once, and asserts that its task holds no slot."""

    def __init__(self, slots):
        super().__init__()
        self.slots = slots

    def serialize(self):
        return "fires", {}

    async def run(self):
        assert self.slots._value == 1
        yield TriggerEvent({"status": "granted"})


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path, "/t", "r", "zk:1", {}, Semaphore(1), 0.0)


@pytest.fixture
def run(place, monkeypatch):
    """Runs a task whose steps are given, one for each execute and resumption."""

    def run(*steps):
        left, tries = list(steps), []

        def step(context, event=None):
            assert place.slots._value == 0
            tries.append(context["ti"].try_number)
            return left.pop(0)()

        def decide(error, number, most, context):
            action = RetryAction.RETRY if isinstance(error, WriteConflictError) else RetryAction.FAIL
            return SimpleNamespace(action=action, retry_delay=None)

        policy = SimpleNamespace(evaluate=decide)
        task = SimpleNamespace(execute=step, resumed=step, retry_policy=policy, retries=9)
        monkeypatch.setattr(ours.Task, "_operator", lambda _: task)
        monkeypatch.setenv(ours.TIMES_VARIABLE, "")
        ours.Task(place, JOB, ARMS["e"]).run()
        return tries

    return run


def driver(place, number, *spans):
    """Leave the record of a try's drivers."""
    lines = [f"started {start}\nended {end} 0\n" for start, end in spans]
    place.times(JOB, number).write_text("".join(lines))


def told(place):
    return [(one.number, one.seconds, one.committed, one.outcome) for one in place.events()]


def test_a_conflict_is_retried_and_each_driver_is_recorded(place, run):
    def loses():
        driver(place, 1, (1, 4))
        raise WriteConflictError("lost", outcome=Outcome.COMMIT_CONFLICT)

    def commits():
        driver(place, 2, (5, 6), (7, 9))  # a clean before the job
        return {"instant": "20261121"}

    assert run(loses, commits) == [1, 2]
    assert told(place) == [
        (1, 3, False, "commit_conflict"),
        (2, 1, False, "clean"),
        (2, 2, True, "committed"),
    ]
    assert place.slots._value == 1


def test_a_deferred_task_gives_its_slot_back_and_goes_on_in_the_same_try(place, run):
    def defers():
        raise TaskDeferred(trigger=Fires(place.slots), method_name="resumed")

    def commits():
        driver(place, 1, (2, 5))
        return {"instant": "20261121"}

    assert run(defers, commits) == [1, 1]
    assert told(place) == [(1, 3, True, "committed")]


def test_another_error_ends_the_task_without_a_commit(place, run):
    def fails():
        driver(place, 1, (2, 5))
        raise ValueError("no table")

    assert run(fails) == [1]
    assert told(place) == [(1, 3, False, "ValueError")]


def test_a_task_without_a_driver_leaves_no_event(place, run):
    assert run(lambda: {"instant": None}) == [1]
    assert told(place) == []


def test_the_connections_are_those_that_the_operator_names():
    names = ours.connections("zk:1").keys()
    assert {f"AIRFLOW_CONN_{one.upper()}" for one in (ours.LOCK, ours.SPARK)} <= names
