from __future__ import annotations

import asyncio
import time

import pytest

from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.triggers import shared_watch as module
from airflow_occ_provider.triggers.shared_watch import WriterTarget, shared_watch
from tests.support.patched import only_in
from tests.unit.beating import BeatingTable

RULE = HeartbeatRule(interval_ms=1000, tolerable_misses=2)


@pytest.fixture
def table(tmp_path):
    return BeatingTable(tmp_path / "t")


@pytest.fixture
def looked_s(monkeypatch):
    """When the table was looked at."""
    times, look = [], WriterWatch.observe

    def timed(self):
        times.append(time.monotonic())
        return look(self)

    monkeypatch.setattr(WriterWatch, "observe", timed)
    return times


@pytest.fixture
def late_first_look(monkeypatch):
    only_in(monkeypatch, module, "random", uniform=lambda least, most: most)


async def follow(table, poll_s, until):
    async with (
        asyncio.timeout(10),
        shared_watch(WriterTarget(str(table.path), None, poll_s, RULE)) as watch,
    ):
        seen = None
        while not until(seen := await watch.listings.after(seen)):
            pass


@pytest.mark.usefixtures("late_first_look")
def test_a_late_writer_is_looked_at_as_soon_as_it_may_be_dead(table, looked_s):
    late = table.begin(1, round(time.time() * 1000) - 1700)
    asyncio.run(follow(table, 60, lambda seen: seen.writer(late).fate is Fate.DEAD))
    assert len(looked_s) == 2


@pytest.mark.usefixtures("late_first_look")
def test_after_a_halt_a_look_keeps_its_place_in_the_period(table, looked_s):
    def halt(_):
        if len(looked_s) == 2:
            time.sleep(0.9)  # the whole event loop
        return len(looked_s) == 4

    table.begin(1, round(time.time() * 1000) + 60_000)
    asyncio.run(follow(table, 0.4, halt))
    *_, late, in_its_place = looked_s
    assert in_its_place - late > 0.1
