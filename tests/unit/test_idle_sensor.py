"""``HudiTableIdleSensor`` and its trigger, on tables whose writers a test lays down."""

from __future__ import annotations

import asyncio
import time

import pytest
from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred

from airflow_occ_provider.errors import OccError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.sensors.idle import HudiTableIdleSensor
from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers.shared_watch import WriterTarget, shared_watch
from tests.support.avro_metadata import RECORD, avro
from tests.unit.beating import BeatingTable, instant


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(base, "_LEAST_S", 0.2)


@pytest.fixture
def table(tmp_path):
    return BeatingTable(tmp_path / "t")


def now_ms():
    return round(time.time() * 1000)


def sensor(table, **given):
    given = {"poke_interval": 0.05, **given}
    return HudiTableIdleSensor(task_id="quiet", table=str(table.path), **given)


def plan(table, time_):
    """Write the profile of a write; it touches the partitions of ``RECORD``."""
    (table.path / ".hoodie" / "timeline" / f"{time_}.inflight").write_bytes(avro(RECORD))
    return next(iter(RECORD["partitionToWriteStats"]))


def fire(waiting, between=lambda: None):
    """Wait in the trigger, as the triggerer does; return its event."""
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute({})

    async def run():
        async with asyncio.timeout(30):
            event = asyncio.ensure_future(anext(deferred.value.trigger.run()))
            await asyncio.sleep(0.2)
            between()
            return (await event).payload

    return asyncio.run(run())


def test_a_table_without_a_live_writer_is_idle(table, tmp_path):
    assert sensor(table).poke({})
    table.begin(1, now_ms() - 3_600_000)
    assert sensor(table).poke({})
    sensor(table, deferrable=True).execute({})
    assert HudiTableIdleSensor(task_id="t", table=str(tmp_path / "none")).poke({})


def test_a_live_writer_is_waited_for(table):
    table.begin(1, now_ms())
    assert not sensor(table).poke({})
    event = fire(sensor(table, deferrable=True), lambda: table.stop_beating(instant(1)))
    assert event == {"status": "idle"}


def test_a_writer_of_other_partitions_is_not(table):
    partition = plan(table, table.begin(1, now_ms()))
    assert sensor(table, scope=["elsewhere"]).poke({})
    assert not sensor(table, scope=[partition]).poke({})


def test_a_writer_that_has_not_planned_yet_may_touch_any(table):
    time_ = table.begin(1, now_ms())
    (table.path / ".hoodie" / "timeline" / f"{time_}.inflight").unlink()
    assert not sensor(table, scope=["elsewhere"]).poke({})
    event = fire(sensor(table, scope=["elsewhere"], deferrable=True), lambda: plan(table, time_))
    assert event == {"status": "idle"}


def test_it_times_out_in_the_triggerer(table):
    table.begin(1, now_ms())
    waiting = sensor(table, deferrable=True, timeout=0.1)
    with pytest.raises(AirflowSensorTimeout, match="was not idle within"):
        waiting.execute_complete({}, fire(waiting))


def test_a_table_that_cannot_be_watched_is_an_error(table):
    with pytest.raises(OccError, match="no file system"):
        sensor(table).execute_complete({}, {"status": "error", "message": "no file system"})


def test_a_table_that_cannot_be_read_is_retried(table):
    (table.path / ".hoodie" / "hoodie.properties").write_text("cut o")
    assert not sensor(table).poke({})


def test_a_listing_from_before_the_task_looked_does_not_count(table):
    waiting = sensor(table, deferrable=True, poke_interval=0.3)

    async def run():
        watched = WriterTarget(str(table.path), None, 0.3, HeartbeatRule())
        async with asyncio.timeout(30), shared_watch(watched) as watch:
            await watch.listings.after(None)
            table.begin(1, now_ms())
            with pytest.raises(TaskDeferred) as deferred:
                waiting.execute({})
            event = asyncio.ensure_future(anext(deferred.value.trigger.run()))
            await watch.current()
            await asyncio.sleep(0.1)
            assert not event.done()
            table.stop_beating(instant(1))
            return (await event).payload

    assert asyncio.run(run()) == {"status": "idle"}
