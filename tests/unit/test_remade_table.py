"""A table that is deleted, moved or made anew while commits to it are waited for."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from airflow_occ_provider.errors import CheckpointLostError, NotHudiTableError
from airflow_occ_provider.reading.new_commits import all_seen
from airflow_occ_provider.sensors.commit import HudiCommitSensor
from airflow_occ_provider.storage.incremental import incremental_read
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.commit_triggers import (
    C,
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
from tests.support.task_state import Store

pytestmark = pytest.mark.usefixtures("watching_at_once")
TABLES = Path(__file__).parents[1] / "golden" / "tables"


@pytest.fixture
def store():
    return StateStore()


def test_a_deleted_table_is_waited_for_and_all_commits_of_the_next_one_are_new(folder, store, output):
    complete(folder, 1)
    complete(folder, 2)
    then = in_turn(
        (lambda: store and instants_read(store) == [T[1], T[2]], lambda: shutil.rmtree(folder.parent)),
        (lambda: output.has("there is no table any more"), lambda: make(folder, 3, 4)),
        (lambda: instants_read(store) == [T[3], T[4]], lambda: complete(folder, 5)),
    )
    found = events(of_asset(folder, store, start="earliest"), 3, then)
    assert all_of(found) == T[1:6]
    assert output.has("none of the last 2 commits")
    assert output.has("All its commits are new")


def test_a_table_that_was_away_and_is_back_has_no_new_commits(folder, store, output):
    complete(folder, 1)
    complete(folder, 2)
    away = folder.parent.parent / "away"
    then = in_turn(
        (lambda: store and instants_read(store) == [T[1], T[2]], lambda: folder.parent.rename(away)),
        (lambda: output.has("there is no table any more"), lambda: away.rename(folder.parent)),
        (folder.exists, lambda: complete(folder, 3)),
    )
    found = events(of_asset(folder, store, start="earliest"), 2, then)
    assert all_of(found) == T[1:4]


@pytest.mark.parametrize(
    ("version", "numbers"),
    [(9, (5, 6)), (9, (0, 1)), (6, (5, 6)), (6, (0, 1))],
    ids=["later", "earlier", "later, layout 1", "earlier, layout 1"],
)
@pytest.mark.parametrize("before", [9, 6])
def test_a_table_may_be_made_anew_between_two_listings(folder, store, before, version, numbers):
    make(folder, 2, 3, 4, version=before)
    then = in_turn(
        (
            lambda: store and instants_read(store) == T[2:5],
            lambda: make(folder, *numbers, version=version),
        )
    )
    found = events(of_asset(folder, store, start="earliest"), 2, then)
    assert all_of(found) == [*T[2:5], *(T[one] for one in numbers)]


def test_a_table_that_is_deleted_and_copied_back_file_by_file_has_no_new_commits(folder, store):
    for number in (1, 2, 3):
        complete(folder, number)
    copy = folder.parent.parent / "copy"
    files = sorted(one.relative_to(folder) for one in folder.rglob("*") if one.is_file())
    shutil.copytree(folder, copy)
    then = in_turn(
        (lambda: store and instants_read(store) == T[1:4], lambda: None),
        *((lambda: True, (folder / one).unlink) for one in files),
        *((lambda: True, partial(shutil.copy, copy / one, folder / one)) for one in reversed(files)),
        (lambda: True, lambda: complete(folder, 4)),
    )
    found = events(of_asset(folder, store, start="earliest"), 2, then)
    assert all_of(found) == T[1:5]


def test_a_table_may_be_deleted_while_a_commit_is_read(folder, store, output):
    complete(folder, 1)
    (folder / "timeline" / f"{T[1]}_{C[1]}.commit").write_bytes(b"cut o")
    then = in_turn(
        (lambda: output.has("cannot be decoded"), lambda: shutil.rmtree(folder.parent)),
        (lambda: output.has("is not a Hudi table"), lambda: make(folder, 3)),
    )
    (event,) = events(of_asset(folder, store, start="earliest"), 1, then)
    assert instants(event) == [T[3]]


def test_a_triggerer_that_was_down_meanwhile_recognises_it(folder, store, output):
    complete(folder, 1)
    then = in_turn((lambda: store and instants_read(store) == [T[1]], lambda: complete(folder, 2)))
    events(of_asset(folder, store, start="earliest"), 2, then)
    make(folder, 0, 3)
    (event,) = events(of_asset(folder, store, start="earliest"), 1)
    assert instants(event) == [T[0], T[3]]
    assert output.has("All its commits are new")


def test_a_task_gets_the_commits_of_the_next_table(folder, output):
    complete(folder, 1)
    since = all_seen(HudiTable(str(folder.parent)).snapshot()).to_json()
    then = in_turn(
        (lambda: True, lambda: shutil.rmtree(folder.parent)),
        (lambda: output.has("there is no table any more"), lambda: make(folder, 0)),
    )
    (event,) = events(of_task(folder, since=since), 1, then)
    assert (event["status"], instants(event)) == ("committed", [T[0]])


def test_a_sensor_counts_all_commits_of_the_next_table(folder, output):
    complete(folder, 1)
    context = {"task_state_store": Store()}
    waiting = HudiCommitSensor(task_id="wait", table=str(folder.parent))
    assert not waiting.poke(context).is_done
    shutil.rmtree(folder.parent)
    assert not waiting.poke(context).is_done
    assert output.has(f"At {folder.parent} there is no table.")
    make(folder, 0)
    assert instants({"commits": waiting.poke(context).xcom_value}) == [T[0]]
    assert output.has("All its commits are new")


@pytest.mark.parametrize("before", ["0.15.0/clustering", "1.2.0/operations", "1.2.0/history"])
@pytest.mark.parametrize("after", ["0.15.0/compaction", "1.0.2/rollbacks", "1.2.0/version_6_history"])
def test_the_commits_of_two_real_tables_are_each_in_one_event(tmp_path, store, before, after):
    tables = [unpack(TABLES / f"{name}.zip", tmp_path / name) for name in (before, after)]
    expected = [written(table) for table in tables]
    metadata = tmp_path / "t" / ".hoodie"
    tables[0].rename(metadata.parent)

    def replace():
        metadata.parent.rename(tmp_path / "old")
        tables[1].rename(metadata.parent)

    then = in_turn((lambda: store and {*instants_read(store)} >= {*expected[0]}, replace))
    found = events(of_asset(metadata, store, start="earliest"), 2, then)
    assert [sorted(instants(event)) for event in found] == expected


def written(table):
    """Return the active commits of writers, oldest first."""
    snapshot = HudiTable(str(table)).snapshot()
    done = snapshot.timeline.completed_writes()
    return [one.time for one in done if not snapshot.reader.commit(one).is_table_service]


def test_a_consumer_of_a_table_that_was_away_goes_on(folder, table):
    complete(folder, 1)
    since = incremental_read(table).window.checkpoint
    away = folder.parent.rename(folder.parent.parent / "away")
    with pytest.raises(NotHudiTableError):
        incremental_read(table, since)
    away.rename(folder.parent)
    complete(folder, 2)
    assert [one.time for one in incremental_read(table, since).window.commits] == [T[2]]


@pytest.mark.parametrize("numbers", [(), (0,), (3,)], ids=["empty", "earlier", "later"])
@pytest.mark.parametrize("version", [6, 9])
def test_a_consumer_of_a_table_that_was_made_anew_is_stopped(folder, table, version, numbers):
    complete(folder, 1)
    since = incremental_read(table).window.checkpoint
    make(folder, *numbers, version=version)
    with pytest.raises(CheckpointLostError, match="begin anew"):
        incremental_read(table, since)


def test_a_table_that_comes_back_during_a_look_is_seen_whole(folder, table, monkeypatch):
    complete(folder, 1)
    before, files, away = table.snapshot(), type(table.files), folder.parent.parent / "away"
    listing = files.listing

    def while_it_is_away(self, name):
        monkeypatch.setattr(files, "listing", listing)
        folder.parent.rename(away)
        found = self.listing(name)
        away.rename(folder.parent)
        return found

    monkeypatch.setattr(files, "listing", while_it_is_away)
    assert [one.time for one in table.snapshot(before).timeline] == [T[1]]
