"""``HudiIncrementalWindowSensor`` and its trigger, on tables made by hand."""

from __future__ import annotations

import asyncio
import json
import os
import shutil

import pytest
from airflow.models.trigger import Trigger
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred
from airflow.sdk.execution_time.context import AssetStateStoreAccessors

from airflow_occ_provider.assets.consumers import CHECKPOINT_KEY, consumer_asset, consumer_state
from airflow_occ_provider.errors import CheckpointLostError, ConfigurationError, OccError
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.sensors.incremental_window import HudiIncrementalWindowSensor
from airflow_occ_provider.storage.incremental import incremental_read
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.triggers import base, shared_watch
from airflow_occ_provider.triggers.commit import HudiIncrementalWindowTrigger
from tests.support.commit_triggers import PATIENCE_S, C, T, complete, events
from tests.support.incremental_reads import write
from tests.support.remade_tables import in_turn, make
from tests.support.stalled_storage import break_down, repair
from tests.support.table_properties import table_properties

pytestmark = pytest.mark.usefixtures("watching_at_once")


@pytest.fixture
def state():
    return {}


@pytest.fixture
def context(state):
    return {"asset_state_store": {consumer_asset("dwh"): state}}


@pytest.fixture
def layout_1(folder):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    return folder


def sensor(folder, **given):
    given = {"poke_interval": 0.02, **({} if "since" in given else {"consumer": "dwh"}), **given}
    return HudiIncrementalWindowSensor(task_id="new", table=str(folder.parent), **given)


def read_all(folder, state):
    """Let the consumer read all that can be read."""
    table = str(folder.parent)
    after = incremental_read(HudiTable(table)).window.checkpoint
    state[CHECKPOINT_KEY] = consumer_state(table, after)
    return after


def trigger(folder, context, **given):
    with pytest.raises(TaskDeferred) as deferred:
        sensor(folder, deferrable=True, **given).execute(context)
    return deferred.value.trigger


def test_it_ends_when_its_consumer_has_commits_to_read(folder, context, state):
    complete(folder, 1)
    read_all(folder, state)
    assert not sensor(folder).poke(context).is_done
    complete(folder, 2)
    window = {"table": str(folder.parent), "commits": [T[2]], "start": C[1], "end": C[2]}
    assert sensor(folder).poke(context).xcom_value == window
    assert sensor(folder, deferrable=True).execute(context) == window


def test_a_consumer_without_a_checkpoint_reads_from_the_beginning(folder, context):
    assert not sensor(folder).poke(context).is_done
    complete(folder, 1)
    assert sensor(folder).poke(context).xcom_value["commits"] == [T[1]]


@pytest.mark.parametrize("as_text", [json.dumps, dict], ids=["text", "values"])
def test_a_checkpoint_counts(folder, state, as_text):
    complete(folder, 1)
    since = as_text(read_all(folder, state).to_json())
    assert not sensor(folder, since=since).poke({}).is_done
    assert sensor(folder, since="null").poke({}).is_done


@pytest.mark.parametrize("since", ["", "[]", "{}", '{"format": 9}', "20261121092501000"])
def test_what_is_no_checkpoint_is_refused(folder, since):
    with pytest.raises(ConfigurationError, match="is no checkpoint"):
        sensor(folder, since=since).poke({})


@pytest.mark.parametrize("given", [{}, {"consumer": "a", "since": "null"}], ids=str)
def test_it_needs_a_consumer_or_a_checkpoint(given):
    with pytest.raises(ConfigurationError, match="either"):
        HudiIncrementalWindowSensor(task_id="t", table="/t", **given)


def test_its_consumer_is_an_inlet():
    task = HudiIncrementalWindowSensor(task_id="t", table="/t", consumer="dwh", inlets=[Asset("a")])
    assert task.inlets == [Asset("a"), consumer_asset("dwh")]
    assert AssetStateStoreAccessors(task.inlets)[consumer_asset("dwh")]
    assert {"table", "since"} <= {*task.template_fields}


def test_it_says_what_holds_the_window_up(layout_1, context, output):
    write(layout_1, T[1], live=True)
    write(layout_1, T[2], completed=True)
    assert not sensor(layout_1).poke(context).is_done
    assert output.has(f"The window ends before the pending {T[1]}.")


def test_in_the_triggerer_it_waits_for_a_commit(folder, context, state):
    complete(folder, 1)
    read_all(folder, state)
    waiting = trigger(folder, context)
    then = in_turn((lambda: True, lambda: complete(folder, 2)))
    (event,) = events(waiting, 1, then)
    window = sensor(folder).execute_complete(context, event)
    assert (window["commits"], window["start"], window["end"]) == ([T[2]], C[1], C[2])


@pytest.mark.parametrize("ends", ["completes", "dies"])
def test_in_the_triggerer_it_waits_for_the_writer_that_holds_the_window_up(
    layout_1, context, output, ends
):
    write(layout_1, T[1], live=True)
    write(layout_1, T[2], completed=True)
    beat = layout_1 / ".heartbeat" / T[1]
    waiting = trigger(layout_1, context)
    words = f"The window ends before the pending {T[1]}."

    def end():
        if ends == "completes":
            (layout_1 / f"{T[1]}.commit").write_text("{}")
            beat.unlink()
        else:
            os.utime(beat, (1, 1))

    (event,) = events(waiting, 1, in_turn((lambda: output.has(words, times=2), end)))
    assert event["window"]["commits"] == (T[1:3] if ends == "completes" else [T[2]])


def test_the_triggers_of_a_table_share_its_listings(folder, context, monkeypatch):
    looks, listed = [], shared_watch.list_writes

    def counted(*given, **options):
        looks.append(1)
        return listed(*given, **options)

    monkeypatch.setattr(shared_watch, "list_writes", counted)
    waiting = [trigger(folder, context, poke_interval=0.2) for _ in range(50)]

    async def run():
        fired = [asyncio.ensure_future(anext(one.run())) for one in waiting]
        async with asyncio.timeout(PATIENCE_S):
            while len(looks) < 3:
                await asyncio.wait(fired, timeout=0.01)
            complete(folder, 1)
            found = [(await one).payload["window"]["commits"] for one in fired]
        return found, len(looks)

    found, number = asyncio.run(run())
    assert found == [[T[1]]] * 50
    assert number < len(waiting)


def test_its_arguments_pass_through_airflows_database(folder, context, state):
    complete(folder, 1)
    read_all(folder, state)
    waiting = trigger(folder, context, storage_conn_id="lake")
    row = Trigger.from_object(waiting)
    assert HudiIncrementalWindowTrigger(**row.kwargs).serialize() == waiting.serialize()
    assert Checkpoint.from_json(waiting.since) == read_all(folder, state)


def test_it_times_out_in_the_triggerer(folder, context, monkeypatch):
    monkeypatch.setattr(base, "_LEAST_S", 0.1)
    (event,) = events(trigger(folder, context, timeout=0), 1)
    with pytest.raises(AirflowSensorTimeout, match="nothing to read"):
        sensor(folder).execute_complete(context, event)


def test_a_table_that_does_not_exist_yet_is_waited_for(folder, context, output):
    shutil.rmtree(folder.parent)
    waiting = trigger(folder, context)
    then = in_turn((lambda: output.has("is not a Hudi table", times=2), lambda: make(folder, 1)))
    (event,) = events(waiting, 1, then)
    assert event["window"]["commits"] == [T[1]]


def test_a_table_that_is_away_is_waited_for(folder, context, state, output):
    complete(folder, 1)
    read_all(folder, state)
    waiting, away = trigger(folder, context), folder.parent.parent / "away"
    then = in_turn(
        (lambda: output.has("No commit yet", times=2), lambda: folder.parent.rename(away)),
        (lambda: output.has("is not a Hudi table"), lambda: away.rename(folder.parent)),
        (lambda: output.has("No commit yet", times=3), lambda: complete(folder, 2)),
    )
    (event,) = events(waiting, 1, then)
    assert event["window"]["commits"] == [T[2]]


@pytest.mark.parametrize("number", [0, 3], ids=["earlier", "later"])
def test_a_table_that_was_made_anew_is_an_error(folder, context, state, output, number):
    complete(folder, 1)
    read_all(folder, state)
    waiting = trigger(folder, context)
    then = in_turn((lambda: output.has("No commit yet", times=2), lambda: make(folder, number)))
    (event,) = events(waiting, 1, then)
    with pytest.raises(OccError, match="made anew"):
        sensor(folder).execute_complete(context, event)
    with pytest.raises(CheckpointLostError):
        sensor(folder).poke(context)


def test_a_storage_that_fails_is_read_again(folder, context, state, output):
    complete(folder, 1)
    read_all(folder, state)
    waiting = trigger(folder, context)
    then = in_turn(
        (lambda: True, lambda: break_down(folder)),
        (lambda: output.has("timeline cannot be read"), lambda: repair(folder)),
        (lambda: True, lambda: complete(folder, 2)),
    )
    (event,) = events(waiting, 1, then)
    assert event["window"]["commits"] == [T[2]]
    break_down(folder)
    assert not sensor(folder).poke(context).is_done


def test_a_commit_whose_clock_stepped_back_can_be_read(folder, context, state):
    complete(folder, 5)
    read_all(folder, state)
    waiting = trigger(folder, context)
    (event,) = events(waiting, 1, in_turn((lambda: True, lambda: complete(folder, 1))))
    assert event["window"]["commits"] == [T[1]]
