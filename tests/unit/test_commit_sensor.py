"""``HudiCommitSensor`` on tables made by hand."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import aclosing
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred

from airflow_occ_provider.errors import ConfigurationError, OccError
from airflow_occ_provider.sensors.commit import HudiCommitSensor
from airflow_occ_provider.triggers import base, commit
from tests.support.commit_triggers import C, T, complete, instants
from tests.support.table_properties import table_properties
from tests.support.task_state import Store

ME = {"identity": "me", "dag_id": "dag", "run_id": "run", "task_id": "task"}


@pytest.fixture
def context():
    return {"task_state_store": Store(), "ti": SimpleNamespace(task_id="wait")}


def sensor(folder, **given):
    return HudiCommitSensor(task_id="wait", table=str(folder.parent), poke_interval=0.02, **given)


def test_commits_count_after_its_first_look_in_any_of_its_tries(folder, context):
    complete(folder, 1)
    assert not sensor(folder).poke(context).is_done
    complete(folder, 2)
    result = sensor(folder).poke(context)  # a process later, or a try
    assert instants({"commits": result.xcom_value}) == [T[2]]
    assert context["task_state_store"] == {}


@pytest.mark.parametrize("after", [T[1], C[1]], ids=["an instant", "a moment"])
def test_commits_count_after_an_instant(folder, context, after):
    complete(folder, 1)
    assert not sensor(folder, after=after).poke(context).is_done
    complete(folder, 2)
    assert instants({"commits": sensor(folder, after=after).poke(context).xcom_value}) == [T[2]]


def test_all_count(folder, context):
    complete(folder, 1)
    assert sensor(folder, after="").poke(context).is_done


def test_the_commit_of_a_task_run_may_be_older_than_the_sensor(folder, context):
    complete(folder, 1, signed=ME)
    complete(folder, 2)
    waiting = sensor(folder, signed={"dag_id": "dag", "run_id": "run"})
    (found,) = waiting.poke(context).xcom_value
    assert (found["instant"], found["signature"]["task_id"]) == (T[1], "task")


@pytest.mark.parametrize("given", [{"partitions": ["x"]}, {"operations": ["insert"]}], ids=str)
def test_other_commits_do_not(folder, context, given):
    complete(folder, 1)
    assert not sensor(folder, after="", **given).poke(context).is_done


def test_a_table_that_does_not_exist_yet_is_waited_for(folder, context, tmp_path):
    folder.parent.rename(tmp_path / "later")
    assert not sensor(folder).poke(context).is_done
    (tmp_path / "later").rename(folder.parent)
    complete(folder, 1)
    assert sensor(folder).poke(context).is_done


def test_a_table_that_was_made_anew_has_new_commits(folder, context):
    complete(folder, 5)
    assert not sensor(folder).poke(context).is_done
    shutil.rmtree(folder / "timeline")
    (folder / "timeline").mkdir()
    complete(folder, 3)
    assert instants({"commits": sensor(folder).poke(context).xcom_value}) == [T[3]]


def test_a_table_that_cannot_be_read_is_retried(folder, context):
    (folder / "hoodie.properties").write_text("cut o")
    assert not sensor(folder).poke(context).is_done


def test_it_waits_in_the_triggerer_from_its_first_look_on(folder, context, monkeypatch):
    monkeypatch.setattr(base, "earliest_s", lambda: 0.0)
    complete(folder, 1)
    waiting = sensor(folder, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(context)
    complete(folder, 2)
    trigger = deferred.value.trigger

    async def fire():
        async with asyncio.timeout(30), aclosing(trigger.run()) as running:
            return (await anext(running)).payload

    event = asyncio.run(fire())
    assert instants({"commits": waiting.execute_complete(context, event)}) == [T[2]]


def test_it_does_not_wait_for_what_is_there(folder, context):
    complete(folder, 1)
    assert len(sensor(folder, deferrable=True, after="").execute(context)) == 1


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ({"status": "timeout"}, AirflowSensorTimeout),
        ({"status": "error", "message": "no file system"}, OccError),
    ],
    ids=str,
)
def test_the_triggers_failures_are_its_own(folder, context, event, error):
    with pytest.raises(error):
        sensor(folder).execute_complete(context, event)


def test_its_lists_are_templated():
    assert {"table", "after", "partitions", "operations", "signed"} <= {
        *HudiCommitSensor.template_fields
    }
    assert commit.DEFAULT_POLL_S == 30


def test_a_first_look_that_fails_leaves_the_beginning_to_the_triggerer(folder, context):
    complete(folder, 1)
    (folder / "hoodie.properties").write_text("cut o")
    with pytest.raises(TaskDeferred) as deferred:
        sensor(folder, deferrable=True, after="").execute(context)
    assert (deferred.value.trigger.since, deferred.value.trigger.start) == (None, "earliest")


def test_a_table_that_was_corrected_is_looked_at_anew(folder, context):
    complete(folder, 1)
    assert not sensor(folder).poke(context).is_done
    context["task_state_store"]["hudi_commit_sensor"]["table"] = "/elsewhere"
    complete(folder, 2)
    assert not sensor(folder).poke(context).is_done


def test_a_commit_that_was_requested_before_and_completes_later_counts_on_layout_1(folder, context):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    for number in (1, 2):
        (folder / f"{T[number]}.commit").write_text("{}")
    os.utime(folder / f"{T[2]}.commit", (time.time() - 50,) * 2)
    (found,) = sensor(folder, after=T[2]).poke(context).xcom_value
    assert found["instant"] == T[1]


def test_an_unknown_label_is_refused():
    with pytest.raises(ConfigurationError, match="dag: a signature has no such label"):
        HudiCommitSensor(task_id="t", table="/t", signed={"dag": "x"})
