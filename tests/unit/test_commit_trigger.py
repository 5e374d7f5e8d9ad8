"""``HudiCommitTrigger`` on tables made by hand, with a state store in memory."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import aclosing

import pytest
from airflow.models.trigger import Trigger

from airflow_occ_provider.reading.new_commits import all_seen
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers import base, commit, shared_watch
from airflow_occ_provider.triggers.commit import HudiCommitTrigger
from tests.support.commit_triggers import (
    PATIENCE_S,
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
from tests.support.table_properties import table_properties


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    monkeypatch.setattr(commit, "_CONFIRM_S", 0.01)
    monkeypatch.setattr(commit, "_RETRY_S", 0.01)


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert shared_watch._watches == {}


@pytest.fixture
def store():
    return StateStore()


def test_its_arguments_pass_through_airflows_database(folder):
    trigger = of_task(folder, partitions=("a",), operations=["upsert"], signed={"dag_id": "d"})
    row = Trigger.from_object(trigger)
    assert HudiCommitTrigger(**row.kwargs).serialize() == trigger.serialize()


def test_an_event_says_what_was_committed_and_by_which_task(folder, store):
    signed = {"identity": "me", "dag_id": "dag", "run_id": "run", "task_id": "task"}
    complete(folder, 1, signed=signed)
    (event,) = events(of_asset(folder, store, start="earliest"), 1)
    assert event["table"] == str(folder.parent)
    (found,) = event["commits"]
    assert (found["instant"], found["completion_time"]) == (T[1], C[1])
    assert (found["action"], found["operation"]) == ("commit", "UPSERT")
    assert found["records"] > 0
    assert found["partitions"]
    assert {key: found["signature"][key] for key in signed} == signed


def test_it_begins_with_the_first_commit_after_it(folder, store):
    complete(folder, 1)

    def then():
        if store:
            complete(folder, 2)

    (event,) = events(of_asset(folder, store), 1, then)
    assert instants(event) == [T[2]]


def test_what_was_reported_is_kept_after_the_event(folder, store):
    complete(folder, 1)

    def then():
        if store and instants_read(store) == [T[1]]:
            complete(folder, 2)

    first, second = events(of_asset(folder, store, start="earliest"), 2, then)
    assert (instants(first), instants(second)) == ([T[1]], [T[2]])


def test_a_triggerer_that_dies_after_an_event_makes_it_again(folder, store):
    complete(folder, 1)
    (before,) = events(of_asset(folder, store, start="earliest"), 1)  # closed before it is confirmed
    (after,) = events(of_asset(folder, store, start="earliest"), 1)
    assert before == after
    assert instants_read(store) == []


def test_one_that_dies_later_does_not(folder, store):
    complete(folder, 1)

    def then():
        if store and instants_read(store) == [T[1]]:
            complete(folder, 2)

    events(of_asset(folder, store, start="earliest"), 2, then)
    (event,) = events(of_asset(folder, store, start="earliest"), 1)
    assert instants(event) == [T[2]]


def test_commits_of_one_listing_are_one_event_in_the_order_of_completion(folder, store):
    complete(folder, 1, completed=C[9])
    complete(folder, 2)
    (event,) = events(of_asset(folder, store, start="earliest"), 1)
    assert instants(event) == [T[2], T[1]]


def test_a_commit_that_completes_late_is_reported(folder, store):
    complete(folder, 2)

    def then():
        if store and instants_read(store) == [T[2]]:
            complete(folder, 1, completed=C[9])

    _, late = events(of_asset(folder, store, start="earliest"), 2, then)
    assert instants(late) == [T[1]]


def test_a_long_write_is_reported_on_a_table_of_layout_1_that_others_overtook(folder, store):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    long = "20261121092400000"
    (folder / f"{long}.commit.requested").touch()
    (folder / f"{long}.inflight").touch()
    for number in range(60):
        for milli in range(5):
            (folder / f"{T[number][:-1]}{milli}.commit").write_text("{}")

    def then():
        if store:
            (folder / f"{long}.commit").write_text("{}")

    (event,) = events(of_asset(folder, store), 1, then)
    assert instants(event) == [long]


@pytest.mark.parametrize(
    "given",
    [
        {"operations": ["insert"]},
        {"partitions": ["elsewhere"]},
        {"signed": {"dag_id": "other"}},
    ],
    ids=str,
)
def test_other_commits_are_left_out(folder, store, given):
    complete(folder, 1, signed={"identity": "me", "dag_id": "dag"})
    with pytest.raises(TimeoutError):
        soon(of_asset(folder, store, start="earliest", **given))


@pytest.mark.parametrize(
    "given", [{"operations": ["upsert"]}, {"signed": {"dag_id": "dag", "map_index": "-1"}}], ids=str
)
def test_wanted_commits_are_not(folder, store, given):
    complete(folder, 1, signed={"identity": "me", "dag_id": "dag"})
    (event,) = events(of_asset(folder, store, start="earliest", **given), 1)
    assert instants(event) == [T[1]]


@pytest.mark.parametrize("operation", ["COMPACT", "CLUSTER"])
def test_table_services_make_no_event(folder, store, operation):
    complete(folder, 1, operation=operation)
    with pytest.raises(TimeoutError):
        soon(of_asset(folder, store, start="earliest"))


def soon(trigger):
    async def run():
        async with asyncio.timeout(0.5), aclosing(trigger.run()) as running:
            return (await anext(running)).payload

    return asyncio.run(run())


def test_a_table_that_does_not_exist_yet_is_waited_for_quietly(folder, store, caplog):
    elsewhere = folder.parent.parent / "later"
    folder.parent.rename(elsewhere)

    def then():
        if elsewhere.exists():
            complete(elsewhere / ".hoodie", 1)
            elsewhere.rename(folder.parent)

    (event,) = events(of_asset(folder, store, start="earliest"), 1, then)
    assert instants(event) == [T[1]]
    assert caplog.records == []


def test_a_table_that_was_made_anew_is_recognised(folder, store):
    complete(folder, 1)
    complete(folder, 2)
    step = []

    def then():
        if step or not store or instants_read(store) != [T[1], T[2]]:
            return
        step.append(1)
        text = (folder / "hoodie.properties").read_text()
        shutil.rmtree(folder)
        (folder / "timeline").mkdir(parents=True)
        complete(folder, 3)
        (folder / "hoodie.properties").write_text(text)

    first, anew = events(of_asset(folder, store, start="earliest"), 2, then)
    assert (instants(first), instants(anew)) == ([T[1], T[2]], [T[3]])


def test_a_state_store_that_fails_delays_the_events(folder, store, capsys):
    complete(folder, 1)
    store.fails = True

    def then():
        if "cannot be watched" in capsys.readouterr().out:
            store.fails = False

    (event,) = events(of_asset(folder, store, start="earliest"), 1, then)
    assert instants(event) == [T[1]]


def test_a_task_waits_for_one_event(folder):
    complete(folder, 1)
    (event,) = events(of_task(folder, start="earliest"), 1)
    assert (event["status"], instants(event)) == ("committed", [T[1]])


def test_a_tasks_checkpoint_counts(folder):
    complete(folder, 1)
    since = all_seen(HudiTable(str(folder.parent)).snapshot())
    complete(folder, 2)
    (event,) = events(of_task(folder, since=since.to_json()), 1)
    assert instants(event) == [T[2]]


def test_a_task_times_out(folder, monkeypatch):
    monkeypatch.setattr(base, "_LEAST_S", 0.1)
    assert events(of_task(folder, deadline_ms=round(time.time() * 1000)), 1) == [{"status": "timeout"}]


def test_many_commits_are_several_events(folder, store, monkeypatch):
    monkeypatch.setattr("airflow_occ_provider.reading.new_commits.new_commits.__defaults__", (2,))
    for number in range(5):
        complete(folder, number)
    found = events(of_asset(folder, store, start="earliest"), 3)
    assert list(map(instants, found)) == [T[:2], T[2:4], T[4:5]]


def test_the_commit_that_makes_the_table_is_new(folder, store):
    elsewhere = folder.parent.parent / "later"
    folder.parent.rename(elsewhere)

    def then():
        if elsewhere.exists() and store:
            complete(elsewhere / ".hoodie", 1)
            elsewhere.rename(folder.parent)

    (event,) = events(of_asset(folder, store), 1, then)
    assert instants(event) == [T[1]]


def test_a_commit_that_could_not_be_read_once_is_read_again(folder, store, capsys):
    complete(folder, 1)
    commit_file = folder / "timeline" / f"{T[1]}_{C[1]}.commit"
    whole = commit_file.read_bytes()
    commit_file.write_bytes(whole[:-9])

    def then():
        if "cannot be read, retrying" in capsys.readouterr().out:
            commit_file.write_bytes(whole)

    (event,) = events(of_asset(folder, store, start="earliest"), 1, then)
    assert instants(event) == [T[1]]


def test_it_may_begin_after_an_instant(folder, store):
    complete(folder, 1)
    complete(folder, 2)
    (event,) = events(of_asset(folder, store, start=T[1]), 1)
    assert instants(event) == [T[2]]


def test_a_single_name_is_not_taken_apart(folder):
    wanted = of_task(folder, partitions="dt=1/", operations="upsert").wanted
    assert (wanted.partitions, wanted.operations) == (("dt=1",), {"UPSERT"})


def test_what_is_left_out_is_stored_now_and_then(folder, store, monkeypatch):
    monkeypatch.setattr(commit, "_STORE_S", 0.0)
    complete(folder, 1)

    async def run():
        watching = of_asset(folder, store, start="earliest", operations=["x"])
        async with aclosing(watching.run()) as running:
            waiting = asyncio.ensure_future(anext(running))
            async with asyncio.timeout(PATIENCE_S):
                while not store or instants_read(store) != [T[1]]:
                    await asyncio.wait([waiting], timeout=0.02)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(run())
