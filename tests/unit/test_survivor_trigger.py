from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from airflow.models.trigger import Trigger

from airflow_occ_provider.triggers import base
from airflow_occ_provider.triggers.idle import HudiSurvivorTrigger
from tests.golden.table_archive import unpack
from tests.unit.beating import BeatingTable

TABLES = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"
SOON_MS = 600


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)


@pytest.fixture
def table(tmp_path):
    return unpack(TABLES / "live_direct.zip", tmp_path / "t")


@pytest.fixture
def trigger(table):
    def trigger(**given):
        arguments = {"instants": beating(table), "interval_ms": 200, "tolerable_misses": 3}
        deadline_ms = now_ms() + 20_000
        return HudiSurvivorTrigger(
            **{"table": str(table), "deadline_ms": deadline_ms, **arguments, **given}
        )

    return trigger


def now_ms():
    return round(time.time() * 1000)


def beating(table):
    names = [path for path in (table / ".hoodie" / ".heartbeat").iterdir() if path.name.isdigit()]
    for path in names:
        path.touch()
    return sorted(path.name for path in names)


def fire(trigger):
    async def first():
        return await anext(trigger.run())

    started = time.monotonic()
    event = asyncio.run(first())
    return event.payload["status"], time.monotonic() - started


def test_it_fires_when_nothing_beats_any_more(trigger):
    status, seconds = fire(trigger())
    assert status == "ended"
    assert seconds > SOON_MS / 1000 * 0.8


def test_what_ticked_after_the_drivers_end_is_not_waited_for(trigger):
    assert fire(trigger(ended_ms=now_ms() - 5000, interval_ms=60_000))[0] == "ended"


def test_a_plain_pause_ends_in_time(trigger):
    status, seconds = fire(trigger(instants=[], until_ms=now_ms() + SOON_MS))
    assert (status, seconds > SOON_MS / 1000 * 0.8) == ("ended", True)


def test_one_that_beats_on_is_given_up_at_the_deadline(trigger):
    status, _ = fire(trigger(interval_ms=1000, tolerable_misses=600, deadline_ms=now_ms() + SOON_MS))
    assert status == "timeout"


def test_a_storage_that_is_away_is_asked_again(trigger, table, monkeypatch):
    waiting = trigger(interval_ms=1000, tolerable_misses=600, deadline_ms=now_ms() + SOON_MS)
    away = table.rename(table.with_name("away"))
    table.touch()
    assert fire(waiting)[0] == "timeout"
    table.unlink()
    away.rename(table)
    assert fire(trigger())[0] == "ended"


def test_a_writer_that_began_after_the_last_listing_is_waited_for(tmp_path):
    table = BeatingTable(tmp_path / "new")

    def waiting(**given):
        arguments = {"interval_ms": 4000, "tolerable_misses": 2, "deadline_ms": now_ms() + 20_000}
        trigger = HudiSurvivorTrigger(table=str(table.path), **{**arguments, **given})
        return asyncio.ensure_future(anext(trigger.run()))

    async def run():
        first = waiting(instants=[table.begin(1, now_ms() + 60_000)])
        await asyncio.sleep(0.2)
        second = waiting(instants=[table.begin(2, now_ms() + 60_000)])
        await asyncio.sleep(0.5)
        assert not second.done()
        for one in (first, second):
            one.cancel()
        await asyncio.gather(first, second, return_exceptions=True)

    asyncio.run(run())


def test_it_comes_back_from_airflows_database(trigger):
    given = trigger(ended_ms=7)
    path, arguments = given.serialize()
    assert path == "airflow_occ_provider.triggers.idle.HudiSurvivorTrigger"
    assert Trigger.from_object(given).kwargs == arguments
    assert HudiSurvivorTrigger(**arguments).serialize() == (path, arguments)
