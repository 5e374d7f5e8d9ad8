"""Clocks that step back by an hour: those of the writers, and the one of this process."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta

import pytest

from airflow_occ_provider.reading.new_commits import CommitFilter, beginning, new_commits
from airflow_occ_provider.sensors.commit import HudiCommitSensor
from airflow_occ_provider.storage import incremental, writers
from airflow_occ_provider.storage.incremental import incremental_read
from airflow_occ_provider.triggers import base
from tests.support.avro_metadata import RECORD, avro
from tests.support.commit_triggers import (
    StateStore,
    T,
    complete,
    events,
    instants,
    instants_read,
    of_asset,
    of_task,
)
from tests.support.remade_tables import in_turn
from tests.support.table_properties import table_properties
from tests.support.task_state import Store

pytestmark = pytest.mark.usefixtures("watching_at_once")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
ALL = CommitFilter()
STEP = -timedelta(hours=1, seconds=3)


class Writer:
    """A writer that commits each ten seconds by its clock; Hudi archives all but the last 30.

    :param folder: the table's ``.hoodie``.
    """

    def __init__(self, folder, layout):
        version = 9 if layout == 2 else 6
        (folder / "hoodie.properties").write_text(table_properties(version=version, layout=layout))
        self._folder = folder / "timeline" if layout == 2 else folder
        self._layout, self._files, self.now = layout, [], NOON
        self.times = []

    def commit(self):
        self.now += timedelta(seconds=10)
        begun, done = (f"{one:%Y%m%d%H%M%S}000" for one in (self.now, self.now + timedelta(seconds=5)))
        file = self._folder / (f"{begun}_{done}.commit" if self._layout == 2 else f"{begun}.commit")
        file.write_bytes(avro(RECORD) if self._layout == 2 else b"{}")
        seconds = self.now.timestamp()
        os.utime(file, (seconds, seconds))
        self._files.append(file)
        for old in self._files[:-30]:
            old.unlink(missing_ok=True)
        self.times.append(begun)

    def step_back(self):
        self.now += STEP


@pytest.fixture(params=[1, 2], ids=["layout 1", "layout 2"])
def writer(request, folder):
    return Writer(folder, request.param)


def looks(writer, before, after=10):
    """Yield after some commits before the step, and after each of those that follow it."""
    for number in range(before):
        writer.commit()
        if number % 10 == 0:
            yield False
    writer.step_back()
    for _ in range(after):
        writer.commit()
        yield True


@pytest.mark.parametrize("before", [5, 231], ids=["few commits", "many commits"])
def test_a_watcher_sees_each_commit_once(writer, table, before):
    since, found = beginning(table.snapshot(), "earliest"), []
    for _ in looks(writer, before):
        new = new_commits(table.snapshot(), since, ALL)
        found += [one.instant.time for one in new.commits]
        since = new.checkpoint
    assert sorted(found) == sorted(writer.times)


@pytest.mark.parametrize("before", [5, 231], ids=["few commits", "many commits"])
def test_a_consumer_reads_each_commit_once(writer, table, before):
    since, found = None, []
    for has_stepped in looks(writer, before):
        read = incremental_read(table, since)
        found += [one.time for one in read.window.commits]
        since = read.window.checkpoint
        if has_stepped:
            assert read.scan == "a commit of the window became visible after later ones were read"
    assert sorted(found) == sorted(writer.times)


def test_a_trigger_makes_an_event_of_each_commit(folder):
    store = StateStore()
    for number in (5, 6):
        complete(folder, number)
    then = in_turn(
        (lambda: store and instants_read(store) == T[5:7], lambda: complete(folder, 2)),
        (lambda: instants_read(store) == [T[2], T[5], T[6]], lambda: complete(folder, 1)),
    )
    found = events(of_asset(folder, store, start="earliest"), 3, then)
    assert list(map(instants, found)) == [T[5:7], [T[2]], [T[1]]]


def test_a_sensor_counts_a_commit_whose_clock_stepped_back(folder):
    context = {"task_state_store": Store()}
    waiting = HudiCommitSensor(task_id="wait", table=str(folder.parent))
    complete(folder, 5)
    assert not waiting.poke(context).is_done
    complete(folder, 1)
    assert instants({"commits": waiting.poke(context).xcom_value}) == [T[1]]


class Clock:
    """The clock of this process, which can be set."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self):
        self.step, self.was_read = timedelta(0), False

    def time(self):
        self.was_read = True
        return time.time() + self.step.total_seconds()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (base, incremental, writers):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_step_changes_no_deadline_of_a_trigger_that_runs(folder, clock, monkeypatch, hours):
    monkeypatch.setattr(base, "_LEAST_S", 0.1)

    def step():
        clock.step = timedelta(hours=hours)

    late = of_task(folder, deadline_ms=round(time.time() * 1000 + 500))
    assert events(late, 1, in_turn((lambda: clock.was_read, step))) == [{"status": "timeout"}]
    clock.step, clock.was_read = timedelta(0), False
    in_time = of_task(folder, deadline_ms=round(time.time() * 1000 + 60_000), start="earliest")
    then = in_turn((lambda: clock.was_read, step), (lambda: True, lambda: complete(folder, 1)))
    (event,) = events(in_time, 1, then)
    assert instants(event) == [T[1]]


def test_a_trigger_that_starts_after_a_step_beyond_its_deadline_looks_once(folder, clock):
    complete(folder, 1)
    clock.step = timedelta(hours=1)
    trigger = of_task(folder, deadline_ms=round(time.time() * 1000 + 60_000), start="earliest")
    (event,) = events(trigger, 1)
    assert instants(event) == [T[1]]


@pytest.fixture
def layout_1(folder):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    (folder / f"{T[1]}.commit").write_text("{}")
    for name in (f"{T[2]}.commit.requested", f"{T[2]}.inflight", f".heartbeat/{T[2]}"):
        (folder / name).touch()
    (folder / f"{T[3]}.commit").write_text("{}")
    return folder


def test_a_live_writer_that_looks_dead_after_a_step_is_read_later(layout_1, table, clock):
    clock.step = timedelta(hours=1)
    first = incremental_read(table).window
    assert [one.time for one in first.commits] == [T[1], T[3]]
    (layout_1 / f"{T[2]}.commit").write_text("{}")
    second = incremental_read(table, first.checkpoint).window
    assert [one.time for one in second.commits] == [T[2]]


def test_a_dead_writer_that_looks_alive_holds_a_window_up_until_the_clock_is_right(
    layout_1, table, clock
):
    beat = layout_1 / ".heartbeat" / T[2]
    os.utime(beat, (time.time() - 1800,) * 2)
    clock.step = timedelta(hours=-1)
    held = incremental_read(table).window
    assert ([one.time for one in held.commits], held.held_up_by) == ([T[1]], (T[2],))
    clock.step = timedelta(0)
    later = incremental_read(table, held.checkpoint).window
    assert [one.time for one in later.commits] == [T[3]]
