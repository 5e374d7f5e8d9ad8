"""A driver elsewhere whose write has lost: the trigger finds it, and the next process judges it."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from types import SimpleNamespace

import pytest

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.submitter import Ended
from airflow_occ_provider.attempts.waits import DriverEvent
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.operators.task_run import _trigger
from airflow_occ_provider.triggers import base, lease
from airflow_occ_provider.triggers import driver as module
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from tests.support.continued_tries import PATIENCE_S, Process, World, deferred, ends
from tests.support.early_stop import Race

REQUESTED = "INFO ActiveTimelineV2: Creating a new instant [==>{}__commit__REQUESTED]"
PREFERRING = {STRATEGY_OPTION: Strategy.SIMPLE.class_name}


class Elsewhere(World):
    """A cluster whose driver writes what a rival has already committed, until it may go on."""

    def __init__(self, race, go):
        super().__init__(race.path / ".hoodie", self._write)
        self.race, self.go = race, go

    def _write(self, say, asked_to_end):
        say(REQUESTED.format(self.race.ours))
        while not self.go.wait(0.01):
            if asked_to_end.is_set():
                return -9
        first, second = (f"operation = ConcurrentOperation(instantTime={one})" for one in self.names)
        say(f"x INFO C: Conflict: first {first}, second {second}")
        return 1

    @property
    def names(self):
        return self.race.ours, self.race.rival


@pytest.fixture
def world(tmp_path, monkeypatch):
    go = threading.Event()
    one = Elsewhere(Race(tmp_path), go)
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(module, "_POLL_S", 0.05)
    monkeypatch.setattr(module, "follower", lambda _, **__: one.submitter())
    monkeypatch.setattr(lease, "lock_hook", lambda _: one.lock)
    monkeypatch.setattr(HudiDriverTrigger, "log", logging.getLogger("trigger"))
    yield one
    go.set()


def trigger_of(world, wait):
    """The trigger as it comes back from Airflow's database."""
    table = str(world.folder.parent)
    task = SimpleNamespace(
        lock_conn_id="lock",
        table=table,
        storage_conn_id=None,
        execution_timeout=None,
        start_timeout=None,
    )
    trigger, _ = _trigger(task, wait)
    _, arguments = trigger.serialize()
    return HudiDriverTrigger(**json.loads(json.dumps(arguments)))


async def fired(trigger):
    return (await asyncio.wait_for(anext(trigger.run()), PATIENCE_S)).payload


def event_of(trigger):
    return DriverEvent.of(json.loads(json.dumps(asyncio.run(fired(trigger)))))


@pytest.mark.parametrize("options", [{}, PREFERRING])
def test_the_trigger_ends_a_driver_that_has_lost_and_its_task_has_a_conflict(world, options):
    process = Process(world, early_stop=EarlyStop.ACT, options=options)
    wait = deferred(process)
    event = event_of(trigger_of(world, wait))
    assert event.stop.rival == world.race.rival
    assert world.submitter().poll(wait.handle) == Ended(-9)
    with pytest.raises(WriteConflictError) as lost:
        Process(world, early_stop=EarlyStop.ACT).run(event)
    assert world.race.rival in str(lost.value)
    (kept,) = world.store.record["attempts"]
    assert (kept["instants"], kept["outcome"]) == ([world.race.ours], "commit_conflict")


def test_an_observer_ends_nothing_and_compares_its_finding_with_what_hudi_did(world, caplog):
    caplog.set_level(logging.INFO)
    wait = deferred(Process(world, early_stop=EarlyStop.OBSERVE))
    trigger = trigger_of(world, wait)

    async def follow():
        following = asyncio.create_task(fired(trigger))
        while "can no longer commit" not in caplog.text and not following.done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        world.go.set()
        return await following

    event = DriverEvent.of(json.loads(json.dumps(asyncio.run(follow()))))
    assert event.stop is None
    with pytest.raises(WriteConflictError):
        Process(world, early_stop=EarlyStop.OBSERVE).run(event)
    found = [line for line in caplog.messages if "after early_stop found that" in line]
    assert [line.endswith("its outcome is commit_conflict.") for line in found] == [True]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, ""),
        ({"early_stop": EarlyStop.ACT, "options": {STRATEGY_OPTION: "a.Merging"}}, "a.Merging"),
    ],
)
def test_a_trigger_without_early_stop_leaves_the_driver_alone(world, given, why, caplog):
    caplog.set_level(logging.INFO)
    wait = deferred(Process(world, **given))
    threading.Timer(0.5, world.go.set).start()
    event = event_of(trigger_of(world, wait))
    assert (event.stop, event.doomed) == (None, None)
    assert ends(world, wait.handle) == Ended(1)
    assert why in "".join(line for line in caplog.messages if "is not applied" in line)
