from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from airflow.models.trigger import Trigger

from airflow_occ_provider.errors import StorageStalledError
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers import heartbeat as trigger_module
from airflow_occ_provider.triggers import shared_watch as module
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from tests.support.heartbeat_triggers import INTERVAL_MS, MISSES, POLL_S, events, now_ms, of_task
from tests.support.patched import only_in
from tests.unit.beating import BeatingTable, instant


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(base, "_LEAST_S", 0.2)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert module._watches == {}


@pytest.fixture
def table(tmp_path):
    return BeatingTable(tmp_path / "t")


@pytest.fixture
def looks(monkeypatch):
    """How often each table was looked at, and by which thread."""
    seen, look = [], WriterWatch.observe

    def counted(self):
        seen.append((self.table.path, threading.current_thread().name))
        return look(self)

    monkeypatch.setattr(WriterWatch, "observe", counted)
    return seen


def of_asset(table, **given):
    trigger = of_task(table, **given)
    trigger._task_instance, trigger.trigger_id = None, 1
    return trigger


def fire(trigger):
    async def bounded():
        async with asyncio.timeout(20):
            return await events(trigger)

    (event,) = asyncio.run(bounded())
    return event


def test_its_arguments_pass_through_airflows_database(table):
    trigger = of_task(table, instants=[instant(1)], match="any", deadline_ms=5)
    row = Trigger.from_object(trigger)
    assert row.classpath == "airflow_occ_provider.triggers.heartbeat.HudiHeartbeatTrigger"
    assert HudiHeartbeatTrigger(**row.kwargs).serialize() == trigger.serialize()


def test_a_dead_writer_is_reported_one_period_after_the_tolerance(table):
    last_ms = now_ms()
    time_ = table.begin(1, last_ms)
    event = fire(of_task(table, instants=[time_], until=["dead"]))
    told_ms = now_ms()
    assert event == {
        "status": "reached",
        "writers": [{"instant": time_, "action": "commit", "fate": "dead", "last_tick_ms": last_ms}],
    }
    tolerance_ms = INTERVAL_MS * MISSES
    assert tolerance_ms < told_ms - last_ms < tolerance_ms + POLL_S * 1000 + 1000


def test_an_event_does_not_depend_on_its_time(table):
    time_ = table.begin(1, 1_700_000_000_000)
    trigger = of_task(table)
    assert fire(trigger) == fire(of_task(table, instants=time_))


def test_no_writers_end_the_wait_for_all_and_not_that_for_any(table):
    assert fire(of_task(table))["writers"] == []
    assert fire(of_task(table, match="any", deadline_ms=now_ms() + 300)) == {"status": "timeout"}


def test_a_writer_that_ends_is_reported_as_committed(table):
    time_ = table.begin(1, now_ms())

    async def run():
        waiting = asyncio.ensure_future(events(of_task(table, instants=[time_], until=["committed"])))
        await asyncio.sleep(POLL_S * 3)
        assert not waiting.done()
        table.commit(time_)
        table.stop_beating(time_)
        return await asyncio.wait_for(waiting, 10)

    (event,) = asyncio.run(run())
    assert [writer["fate"] for writer in event["writers"]] == ["committed"]


def test_one_look_a_period_serves_every_trigger_and_the_last_ends_it(table, looks):
    time_ = table.begin(1, now_ms())
    given = {"until": ["committed"], "interval_ms": 60_000}

    async def run():
        waiting = [asyncio.ensure_future(events(of_task(table, **given))) for _ in range(200)]
        begun_s = time.monotonic()
        async with asyncio.timeout(60):
            while len(looks) < 3:  # noqa: ASYNC110 - the looks are counted by another thread
                await asyncio.sleep(POLL_S)
        periods = (time.monotonic() - begun_s) / POLL_S
        assert len(looks) <= periods + 2
        for one in waiting[1:]:
            one.cancel()
        await asyncio.gather(*waiting[1:], return_exceptions=True)
        table.commit(time_)
        table.stop_beating(time_)
        # no writer is pending any more: the last event is sent
        (event,) = await asyncio.wait_for(waiting[0], 10)
        assert event["writers"] == []
        assert module._watches == {}
        looked = len(looks)
        await asyncio.sleep(POLL_S * 5)
        assert len(looks) == looked

    asyncio.run(run())
    assert {name.startswith("hudi-") for _, name in looks} == {True}


def test_a_trigger_that_starts_later_gets_its_event_without_another_listing(table, looks, monkeypatch):
    only_in(monkeypatch, module, "random", uniform=lambda _, most: most)  # the next listing is far away
    table.begin(1, 1_700_000_000_000)
    given = {"until": ["dead"], "match": "any"}

    async def run():
        waiting = asyncio.ensure_future(events(of_task(table, until=["committed"], poll_s=30)))
        await asyncio.sleep(1)
        (event,) = await asyncio.wait_for(events(of_task(table, poll_s=30, **given)), 10)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return event

    assert asyncio.run(run())["writers"][0]["fate"] == "dead"
    assert len(looks) == 1


def test_a_writer_that_began_after_the_last_listing_is_waited_for(table):
    async def run():
        others = asyncio.ensure_future(events(of_task(table, until=["dead"], match="any", poll_s=1)))
        await asyncio.sleep(0.2)  # the table was listed, and no writer wrote
        table.begin(1, now_ms() + 60_000)
        waiting = asyncio.ensure_future(events(of_task(table, poll_s=1)))
        await asyncio.sleep(1.5)
        assert not waiting.done()
        for one in (others, waiting):
            one.cancel()
        await asyncio.gather(others, waiting, return_exceptions=True)

    asyncio.run(run())


def test_a_storage_that_falls_silent_is_asked_again(table, monkeypatch, caplog):
    time_ = table.begin(1, 1_700_000_000_000)
    look, silent = WriterWatch.observe, []

    def stalled(self):
        if len(silent) < 4:
            silent.append(1)
            raise StorageStalledError("no answer", remedy="wait")
        return look(self)

    monkeypatch.setattr(WriterWatch, "observe", stalled)
    assert fire(of_task(table, instants=[time_]))["writers"][0]["fate"] == "dead"
    assert len(silent) == 4


def test_what_cannot_be_watched_is_an_error(table):
    event = fire(of_task(table, instants="yesterday"))
    assert event["status"] == "error"
    assert "instants: 'yesterday' is not the requested time" in event["message"]
    event = fire(of_task(SimpleNamespace(path="nowhere://lake/t")))
    assert event["status"] == "error"
    assert "nowhere" in event["message"]


def test_a_table_that_is_not_there_yet_is_waited_for(tmp_path):
    nothing = SimpleNamespace(path=tmp_path / "nothing")
    assert fire(of_task(nothing, deadline_ms=now_ms() + 300)) == {"status": "timeout"}


@pytest.mark.parametrize("deadline_ms", [0, 1])
def test_an_assets_watcher_gets_each_new_dead_writer_once_also_after_a_deadline(table, deadline_ms):
    first = table.begin(1, 1_700_000_000_000)
    trigger = of_asset(table, until=["dead"], match="any", deadline_ms=deadline_ms)

    async def run():
        stream = trigger.run()
        told = [(await asyncio.wait_for(anext(stream), 10)).payload]
        more = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(POLL_S * 4)
        assert not more.done()
        second = table.begin(2, 1_700_000_000_000)
        told.append((await asyncio.wait_for(more, 10)).payload)
        await stream.aclose()
        return second, told

    second, told = asyncio.run(run())
    assert [[w["instant"] for w in event["writers"]] for event in told] == [[first], [first, second]]


def test_an_assets_watcher_makes_no_event_of_what_goes_wrong(monkeypatch, capsys, caplog):
    monkeypatch.setattr(trigger_module, "_WATCHER_RETRY_S", 0.1)
    trigger = of_asset(SimpleNamespace(path="nowhere://lake/t"))

    async def run():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(trigger.run()), 0.5)

    asyncio.run(run())
    assert (capsys.readouterr().out + caplog.text).count("The table cannot be watched: ") > 1


def test_in_a_test_of_the_dag_an_error_is_raised():
    trigger = of_task(SimpleNamespace(path="nowhere://lake/t"))
    trigger._task_instance = None
    assert fire(trigger)["status"] == "error"


def test_a_tasks_own_writes_are_those_that_it_has_recorded(table, monkeypatch):
    mine, other = table.begin(1, 1_700_000_000_000), table.begin(2, now_ms() + 60_000)
    told = iter([None, None, [mine]])
    asked = []

    def get_one(**given):
        asked.append(given)
        return next(told)

    monkeypatch.setattr(trigger_module.XCom, "get_one", get_one)
    event = fire(of_task(table, writer_task_id="write"))
    assert [writer["instant"] for writer in event["writers"]] == [mine]
    assert other != mine
    assert asked == [{"key": "hudi_instants", "dag_id": "d", "run_id": "r", "task_id": "write"}] * 3


def test_a_cancelled_trigger_leaves_nothing(table):
    table.begin(1, now_ms() + 60_000)

    async def run():
        waiting = asyncio.ensure_future(events(of_task(table)))
        await asyncio.sleep(POLL_S)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        assert module._watches == {}
        names = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]
        assert "SharedWatch._poll" not in names

    asyncio.run(run())


def test_the_clocks_are_logged(table, capsys, caplog):
    ahead_ms = 5000
    time_ = table.begin(1, now_ms() + ahead_ms)

    async def run():
        waiting = asyncio.ensure_future(events(of_task(table, instants=[time_], until=["committed"])))
        for _ in range(6):
            await asyncio.sleep(POLL_S)
            table.beat(time_, now_ms() + ahead_ms)
        table.commit(time_)
        table.stop_beating(time_)
        await asyncio.wait_for(waiting, 10)

    asyncio.run(run())
    text = capsys.readouterr().out + caplog.text
    assert "The storage's clock is ahead of this host's by +" in text
    assert "differ by more than one heartbeat interval" in text
