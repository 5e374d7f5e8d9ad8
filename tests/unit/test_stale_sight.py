"""A trigger that shares a watch may have an instant that the watch's last listing lacks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers import heartbeat as trigger_module
from airflow_occ_provider.triggers import shared_watch as module
from tests.support.heartbeat_triggers import events, now_ms, of_task
from tests.unit.beating import BeatingTable

PATIENCE_S = 60
CALM = {"interval_ms": 60_000, "poll_s": 0.1}  # no writer of these tests comes near its expiry


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)


@pytest.fixture
def table(tmp_path):
    return BeatingTable(tmp_path / "t")


class Looks:
    """Counts looks at a table, and holds them back between ``hold`` and ``let``."""

    def __init__(self):
        self.begun = self.ended = 0
        self._open = threading.Event()
        self._open.set()

    def pass_gate(self, look):
        self.begun += 1
        assert self._open.wait(PATIENCE_S)
        seen = look()
        self.ended += 1
        return seen

    async def more(self, number):
        wanted = self.ended + number
        await until(lambda: self.ended >= wanted)

    async def hold(self):
        """Return when the next look has been asked for and waits."""
        await self.more(1)
        self._open.clear()
        await until(lambda: self.begun > self.ended)

    def let(self):
        self._open.set()


async def until(happened):
    async with asyncio.timeout(PATIENCE_S):
        while not happened():  # noqa: ASYNC110 - what happens sets no event
            await asyncio.sleep(0.01)


@pytest.fixture
def looks(monkeypatch):
    looks, look = Looks(), WriterWatch.observe
    monkeypatch.setattr(WriterWatch, "observe", lambda watch: looks.pass_gate(lambda: look(watch)))
    yield looks
    looks.let()


def waiting(table, **given):
    return asyncio.create_task(events(of_task(table, **{**CALM, **given})))


async def joined(task):
    """Return when a trigger shares the watch of the first one."""
    await until(lambda: task.done() or [one.users for one in module._watches.values()] == [2])


async def end(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_a_writer_that_began_after_the_last_look_is_not_gone(table, looks):
    async def run():
        first = waiting(table, match="any", until=["dead"])
        await looks.hold()
        second = waiting(table, instants=[table.begin(1, now_ms())])
        await joined(second)
        looks.let()
        await looks.more(3)
        told = second.result() if second.done() else []
        await end(first, second)
        return told

    assert asyncio.run(run()) == []


def test_a_writer_whose_instant_was_recorded_late_is_not_gone(table, looks, monkeypatch):
    told_instants, asked = [], []

    def get_one(**_):
        asked.append(1)
        return told_instants or None

    monkeypatch.setattr(trigger_module.XCom, "get_one", staticmethod(get_one))

    async def run():
        waiter = waiting(table, writer_task_id="w")
        await until(lambda: asked)  # it has seen a look, and waits for the instants
        told_instants.append(table.begin(1, now_ms()))
        await looks.more(3)
        told = waiter.result() if waiter.done() else []
        await end(waiter)
        return told

    assert asyncio.run(run()) == []


def test_an_instant_that_began_and_committed_between_two_listings_is_reported(table, looks):
    async def run():
        first = waiting(table, match="any", until=["dead"])
        await looks.hold()
        time_ = table.begin(1, now_ms())
        second = waiting(table, instants=[time_], until=["committed"])
        await joined(second)
        table.commit(time_)
        table.stop_beating(time_)
        looks.let()
        async with asyncio.timeout(PATIENCE_S):
            told = await second
        await end(first)
        return [one["status"] for one in told]

    assert asyncio.run(run()) == ["reached"]
