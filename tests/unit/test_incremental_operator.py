"""``HudiIncrementalReadOperator`` without Spark: what its job gets, and when the checkpoint moves."""

from __future__ import annotations

import shutil

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_occ_provider.assets.consumers import CHECKPOINT_KEY, consumer_asset
from airflow_occ_provider.errors import StateStoreError, TableUnreadableError
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.operators.hudi_incremental_read import (
    HudiIncrementalReadOperator,
)
from tests.support.commit_triggers import C, T, complete
from tests.support.incremental_reads import AssetState, read
from tests.support.task_state import Store


@pytest.fixture
def state():
    return AssetState()


@pytest.fixture
def run(state):
    """Return the context of a new DAG run."""

    def run():
        asset = consumer_asset("dwh")
        return {"asset_state_store": {asset: state}, "task_state_store": Store()}

    return run


def commits(jobs):
    return [one["commits"] for one in jobs]


def moved_to(state):
    kept = state[CHECKPOINT_KEY]["checkpoint"]
    return kept and [one.requested for one in Checkpoint.from_json(kept).read]


def test_the_job_gets_what_is_new_and_the_checkpoint_follows(folder, run, jobs, state):
    complete(folder, 1)
    result = read(folder).execute(run())
    assert result["commits"] == [T[1]]
    assert jobs[0]["options"] == {"hoodie.datasource.query.type": "snapshot"}
    assert jobs[0]["predicate"] == f"_hoodie_commit_time in ('{T[1]}')"
    assert moved_to(state) == [T[1]]
    complete(folder, 2)
    read(folder).execute(run())
    assert commits(jobs) == [[T[1]], [T[2]]]
    assert jobs[1]["options"]["hoodie.datasource.read.begin.instanttime"] == C[1]
    assert jobs[1]["table"] == str(folder.parent)


def test_its_configuration_stays_beside_the_window(folder, run, jobs):
    complete(folder, 1)
    task = read(folder, conf={"spark.a": "b"})
    task.execute(run())
    assert task.conf["spark.a"] == "b"
    assert task.window == jobs[0]


def test_without_a_new_commit_it_is_skipped(folder, run, jobs):
    complete(folder, 1)
    read(folder).execute(run())
    with pytest.raises(AirflowSkipException, match="has no new commit"):
        read(folder).execute(run())
    assert len(jobs) == 1


def test_a_consumer_may_begin_with_what_follows(folder, run, jobs):
    complete(folder, 1)
    with pytest.raises(AirflowSkipException):
        read(folder, start="latest").execute(run())
    complete(folder, 2)
    read(folder, start="latest").execute(run())
    assert commits(jobs) == [[T[2]]]


def test_a_job_that_fails_gets_the_same_window_again(folder, run, jobs, state):
    complete(folder, 1)
    context = run()
    SparkSubmitOperator.execute.fails = 1
    with pytest.raises(RuntimeError, match="the job failed"):
        read(folder).execute(context)
    assert moved_to(state) is None
    complete(folder, 2)
    read(folder).execute(context)
    assert commits(jobs) == [[T[1]], [T[1]]]
    assert moved_to(state) == [T[1]]


def test_a_run_that_is_cleared_reads_its_window_again_and_moves_nothing(folder, run, jobs, state):
    complete(folder, 1)
    first = run()
    read(folder).execute(first)
    complete(folder, 2)
    read(folder).execute(run())
    read(folder).execute(first)
    assert commits(jobs) == [[T[1]], [T[2]], [T[1]]]
    assert moved_to(state) == [T[1], T[2]]


def test_a_run_that_failed_for_good_is_read_by_the_next_one(folder, run, jobs):
    complete(folder, 1)
    SparkSubmitOperator.execute.fails = 1
    with pytest.raises(RuntimeError):
        read(folder).execute(run())
    complete(folder, 2)
    read(folder).execute(run())
    assert commits(jobs) == [[T[1]], [T[1], T[2]]]


def test_two_runs_at_once_are_noticed(folder, run, jobs, state):
    complete(folder, 1)
    context = run()
    SparkSubmitOperator.execute.fails = 1
    with pytest.raises(RuntimeError):
        read(folder).execute(context)
    complete(folder, 2)
    read(folder).execute(run())
    with pytest.raises(AirflowFailException, match="another run of 'dwh' has moved"):
        read(folder).execute(context)
    assert moved_to(state) == [T[1], T[2]]
    assert commits(jobs) == [[T[1]], [T[1], T[2]]]  # its job does not run again


def test_a_checkpoint_that_cannot_be_stored_stops_it_before_the_job(folder, run, jobs, state):
    complete(folder, 1)
    state.active = False
    with pytest.raises(StateStoreError, match="up to a minute"):
        read(folder).execute(run())
    assert jobs == []


def test_a_consumer_reads_one_table(folder, run, jobs, state):
    complete(folder, 1)
    read(folder).execute(run())
    state[CHECKPOINT_KEY]["table"] = "s3://other"
    with pytest.raises(AirflowFailException, match="'dwh' reads s3://other"):
        read(folder).execute(run())


def test_a_checkpoint_of_a_later_release_is_refused(folder, run, jobs, state):
    complete(folder, 1)
    read(folder).execute(run())
    state[CHECKPOINT_KEY]["checkpoint"]["format"] = 9
    with pytest.raises(AirflowFailException, match="format 9"):
        read(folder).execute(run())


def test_a_release_that_cannot_read_the_table_is_refused_before_the_job(folder, run, jobs):
    complete(folder, 1)
    with pytest.raises(AirflowFailException, match=r"Hudi 0\.15 reads tables up to version 6"):
        read(folder, release="0.15").execute(run())
    assert jobs == []


def test_its_consumer_is_an_outlet():
    task = HudiIncrementalReadOperator(
        task_id="read", consumer="dwh", table="/t", application="a.py", outlets=[]
    )
    assert task.outlets == [consumer_asset("dwh")]
    assert {"table", "window"} <= {*task.template_fields}


def test_a_deleted_table_or_one_made_anew_stops_it_and_leaves_the_checkpoint(folder, run, jobs, state):
    complete(folder, 1)
    read(folder).execute(run())
    away = folder.parent.rename(folder.parent.parent / "away")
    with pytest.raises(AirflowFailException, match="is not a Hudi table"):
        read(folder).execute(run())
    away.rename(folder.parent)
    shutil.rmtree(folder / "timeline")
    (folder / "timeline").mkdir()
    complete(folder, 2)
    with pytest.raises(AirflowFailException, match="made anew"):
        read(folder).execute(run())
    assert (commits(jobs), moved_to(state)) == ([[T[1]]], [T[1]])


def test_after_a_table_was_made_anew_between_two_tries_the_next_run_is_stopped(folder, run, jobs):
    complete(folder, 1)
    context = run()
    SparkSubmitOperator.execute.fails = 1
    with pytest.raises(RuntimeError):
        read(folder).execute(context)
    shutil.rmtree(folder / "timeline")
    (folder / "timeline").mkdir()
    complete(folder, 2)
    read(folder).execute(context)  # its condition finds no row
    with pytest.raises(AirflowFailException, match="made anew"):
        read(folder).execute(run())


def test_a_storage_that_fails_is_read_by_the_next_try(folder, run, jobs, state):
    complete(folder, 1)
    context, timeline = run(), folder / "timeline"
    timeline.rename(folder / "real")
    timeline.touch()  # to list it fails
    with pytest.raises(TableUnreadableError, match="timeline cannot be read"):
        read(folder).execute(context)
    timeline.unlink()
    (folder / "real").rename(timeline)
    read(folder).execute(context)
    assert (commits(jobs), moved_to(state)) == ([[T[1]]], [T[1]])
