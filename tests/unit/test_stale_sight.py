"""Who shares a watch may know an instant that its last look does not."""

from __future__ import annotations

import asyncio

import pytest

from airflow_occ_provider.triggers import earliest
from airflow_occ_provider.triggers import heartbeat as trigger_module
from tests.unit.beating import BeatingTable
from tests.unit.test_heartbeat_trigger import events, now_ms, of_task


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(earliest, "EARLIEST_S", 0.0)


@pytest.fixture
def table(tmp_path):
    return BeatingTable(tmp_path / "t")


async def beat(table, time_):
    while True:
        table.beat(time_, now_ms())
        await asyncio.sleep(0.05)


def test_a_writer_that_began_after_the_last_look_is_not_gone(table):
    async def run():
        first = asyncio.create_task(events(of_task(table, match="any", until=["dead"], poll_s=0.5)))
        await asyncio.sleep(1.2)  # the first look, and the next period has begun
        time_ = table.begin(1, now_ms())
        beating = asyncio.create_task(beat(table, time_))
        second = asyncio.create_task(events(of_task(table, instants=[time_], poll_s=0.5)))
        done, _ = await asyncio.wait({second}, timeout=1.5)
        told = [one for task in done for one in task.result()]
        for task in (first, second, beating):
            task.cancel()
        await asyncio.gather(first, second, beating, return_exceptions=True)
        return told

    assert asyncio.run(run()) == []


def test_a_writer_whose_instant_was_told_late_is_not_gone(table, monkeypatch):
    told_instants = []
    monkeypatch.setattr(trigger_module.XCom, "get_one", staticmethod(lambda **_: told_instants or None))

    async def run():
        waiting = asyncio.create_task(events(of_task(table, writer_task_id="w")))
        await asyncio.sleep(0.5)
        time_ = table.begin(1, now_ms())
        beating = asyncio.create_task(beat(table, time_))
        await asyncio.sleep(0.3)
        told_instants.append(time_)
        done, _ = await asyncio.wait({waiting}, timeout=1.0)
        told = [one for task in done for one in task.result()]
        for task in (waiting, beating):
            task.cancel()
        await asyncio.gather(waiting, beating, return_exceptions=True)
        return told

    assert asyncio.run(run()) == []


def test_an_instant_that_began_and_committed_between_two_looks_is_told(table):
    async def run():
        first = asyncio.create_task(events(of_task(table, match="any", until=["dead"], poll_s=0.5)))
        await asyncio.sleep(1.2)
        time_ = table.begin(1, now_ms())
        waiting = asyncio.create_task(
            events(of_task(table, instants=[time_], until=["committed"], poll_s=0.5))
        )
        await asyncio.sleep(0.05)
        table.commit(time_)
        table.stop_beating(time_)
        done, _ = await asyncio.wait({waiting}, timeout=3)
        told = [one["status"] for task in done for one in task.result()]
        for task in (first, waiting):
            task.cancel()
        await asyncio.gather(first, waiting, return_exceptions=True)
        return told

    assert asyncio.run(run()) == ["reached"]
