"""Commits to a table whose storage fails or does not answer for several periods."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest

from airflow_occ_provider.sensors.commit import HudiCommitSensor
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers import base, shared_watch
from tests.stalls.store import StallingFileSystem
from tests.support.commit_triggers import (
    PATIENCE_S,
    StateStore,
    T,
    complete,
    events,
    instants,
    instants_read,
    of_asset,
    of_task,
)
from tests.support.remade_tables import all_of, in_turn, make
from tests.support.stalled_storage import break_down, repair
from tests.support.task_state import Store

pytestmark = pytest.mark.usefixtures("watching_at_once")
TIMEOUT_S = 0.1
STALLED, HEALTHY = "stalled", "healthy"


@pytest.fixture
def store():
    return StateStore()


@pytest.fixture
def stall(tmp_path, monkeypatch):
    """The file that stalls the storage of connections ``stalled...`` while it is there."""
    file = tmp_path / "stall"
    ours = StallingFileSystem(stall=file, skip_instance_cache=True)

    def opened(table, conn_id):
        storage = ours if conn_id.startswith(STALLED) else None
        return HudiTable(table, storage, timeout_s=TIMEOUT_S)

    monkeypatch.setattr(shared_watch, "open_table", opened)
    yield file
    file.unlink(missing_ok=True)


def threads(name):
    return sum(one.name.startswith(name) for one in threading.enumerate())


def abandoned():
    """Return how many requests have not been answered."""
    return threads("hudi-storage")


def test_a_stall_of_several_periods_loses_no_commit(folder, store, stall, output):
    complete(folder, 1)
    then = in_turn(
        (lambda: store and instants_read(store) == [T[1]], stall.touch),
        (lambda: abandoned() > 1, lambda: [complete(folder, number) for number in (2, 3)]),
        (lambda: abandoned() > 5, stall.unlink),
        (lambda: instants_read(store) == T[1:4], lambda: complete(folder, 4)),
    )
    own = f"{STALLED} alone"
    found = events(of_asset(folder, store, start="earliest", storage_conn_id=own), 3, then)
    assert list(map(instants, found)) == [[T[1]], T[2:4], [T[4]]]
    assert output.has("the storage did not answer in 0.1 s")
    assert threads(f"hudi-file-{own}") <= 2


def test_a_task_waits_until_the_storage_answers(folder, stall):
    stall.touch()
    complete(folder, 1)
    then = in_turn((lambda: abandoned() > 3, stall.unlink))
    (event,) = events(of_task(folder, start="earliest", storage_conn_id=STALLED), 1, then)
    assert (event["status"], instants(event)) == ("committed", [T[1]])


def test_a_task_times_out_while_the_storage_does_not_answer(folder, stall, monkeypatch):
    monkeypatch.setattr(base, "_LEAST_S", 0.3)
    stall.touch()
    trigger = of_task(folder, start="earliest", storage_conn_id=STALLED, deadline_ms=1)
    assert events(trigger, 1) == [{"status": "timeout"}]


def test_a_stalled_storage_delays_no_other_one(folder, stall):
    tables = [folder]
    for number in range(20):
        tables.append(folder.parent.parent / str(number) / "t" / ".hoodie")
        tables[-1].parent.parent.mkdir()
        make(tables[-1], 1)
    complete(folder, 1)

    async def first(trigger):
        async with aclosing(trigger.run()) as running:
            return instants((await anext(running)).payload)

    async def run():
        stall.touch()
        late = [
            asyncio.create_task(first(of_task(one, start="earliest", storage_conn_id=STALLED)))
            for one in tables
        ]
        async with asyncio.timeout(PATIENCE_S):
            while abandoned() < len(tables):
                await asyncio.wait(late, timeout=0.01)
            healthy = of_task(folder, start="earliest", storage_conn_id=HEALTHY)
            assert await first(healthy) == [T[1]]
            assert not any(one.done() for one in late)
            stall.unlink()
            return await asyncio.gather(*late)

    assert asyncio.run(run()) == [[T[1]]] * len(tables)


def test_a_storage_that_fails_for_several_periods_loses_no_commit(folder, store, output, monkeypatch):
    looks, look = [], HudiTable.snapshot

    def counted(self, *given, **options):
        looks.append(1)
        return look(self, *given, **options)

    monkeypatch.setattr(HudiTable, "snapshot", counted)
    complete(folder, 1)
    then = in_turn(
        (lambda: store and instants_read(store) == [T[1]], lambda: break_down(folder)),
        (lambda: output.has("timeline cannot be read"), looks.clear),
        (lambda: len(looks) > 5, lambda: repair(folder)),
        (lambda: True, lambda: complete(folder, 2)),
    )
    found = events(of_asset(folder, store, start="earliest"), 2, then)
    assert all_of(found) == T[1:3]
    assert not output.has("timeline cannot be read", times=2)


def test_a_sensor_looks_again_at_a_storage_that_fails(folder):
    context = {"task_state_store": Store()}
    waiting = HudiCommitSensor(task_id="wait", table=str(folder.parent))
    complete(folder, 1)
    assert not waiting.poke(context).is_done
    break_down(folder)
    assert not waiting.poke(context).is_done
    repair(folder)
    complete(folder, 2)
    assert instants({"commits": waiting.poke(context).xcom_value}) == [T[2]]
