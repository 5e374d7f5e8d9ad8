"""``HudiTriggerDagRunOperator`` on tables made by hand: which runs it starts, and when again."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSkipException,
    ErrorType,
)
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, OKResponse

from airflow_occ_provider.assets import commit_runs
from airflow_occ_provider.assets.commit_runs import PLAN_KEY
from airflow_occ_provider.assets.consumers import CHECKPOINT_KEY, Consumer, consumer_asset
from airflow_occ_provider.errors import ConfigurationError, DagRunNotStartedError, StateStoreError
from airflow_occ_provider.operators.hudi_trigger_dag_run import HudiTriggerDagRunOperator
from airflow_occ_provider.storage.table import HudiTable
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.support.commit_triggers import C, T, complete
from tests.support.incremental_reads import AssetState

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
RUN = "hudi__runs_of_on_trips__"


class Airflow:
    """Creates runs, at most one of an id, as Airflow's API does; and may stop in the middle."""

    def __init__(self):
        self.runs = {}
        self.left = None

    def send(self, request):
        if self.left == 0:
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        self.left = None if self.left is None else self.left - 1
        if request.run_id in self.runs:
            return ErrorResponse(error=ErrorType.DAGRUN_ALREADY_EXISTS)
        assert request.logical_date is None
        self.runs[request.run_id] = json.loads(json.dumps(request.conf))
        return OKResponse(ok=True)

    @property
    def commits(self):
        """The instants of each run's commits."""
        return [[one["instant"] for one in conf["commits"]] for conf in self.runs.values()]


@pytest.fixture
def airflow(monkeypatch):
    airflow = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
    return airflow


@pytest.fixture
def state():
    return AssetState()


@pytest.fixture
def start(folder, state):
    """Run the task, of a DAG run that commits started or that a user did."""

    def start(*numbers, extras=(), **given):
        commits = [{"instant": T[number]} for number in numbers]
        payload = {"table": str(folder.parent), "commits": commits}
        found = [{"payload": payload}] if numbers else []
        events = [SimpleNamespace(extra=one) for one in (*found, *extras)]
        context = {
            "asset_state_store": {consumer_asset("runs_of_on_trips"): state},
            "triggering_asset_events": {"trips": events} if events else {},
        }
        given = {"table": str(folder.parent), "trigger_dag_id": "on_trips", **given}
        return HudiTriggerDagRunOperator(task_id="start", **given).execute(context)

    return start


def test_each_commit_has_a_run_with_what_was_committed(folder, airflow, start):
    complete(folder, 1)
    complete(folder, 2, operation="INSERT")
    assert start(1) == [f"{RUN}{T[1]}", f"{RUN}{T[2]}"]
    conf = airflow.runs[f"{RUN}{T[2]}"]
    assert conf["table"] == str(folder.parent)
    (commit,) = conf["commits"]
    assert (commit["instant"], commit["completion_time"]) == (T[2], C[2])
    assert commit["operation"] == "INSERT"


def test_it_begins_with_the_first_commit_that_started_it(folder, airflow, start):
    for number in (1, 2, 3):
        complete(folder, number)
    start(2)
    assert airflow.commits == [[T[2]], [T[3]]]


def test_the_event_of_a_task_that_wrote_counts_as_well(folder, airflow, start):
    complete(folder, 1)
    complete(folder, 2)
    start(extras=[{"instant": T[2], "path": "t"}, {"instant": None}, None])
    assert airflow.commits == [[T[2]]]


def test_started_by_hand_it_begins_with_what_follows(folder, airflow, start):
    complete(folder, 1)
    with pytest.raises(AirflowSkipException, match="has no new commit"):
        start()
    complete(folder, 2)
    start()
    assert airflow.commits == [[T[2]]]


def test_a_commit_that_started_it_and_left_the_timeline_hides_no_other(folder, airflow, start):
    complete(folder, 2)
    start(1)
    assert airflow.commits == [[T[2]]]


def test_it_may_begin_at_the_beginning(folder, airflow, start):
    complete(folder, 1)
    complete(folder, 2)
    start(2, start="earliest")
    assert airflow.commits == [[T[1]], [T[2]]]


def test_a_late_commit_that_was_requested_early_has_its_run(folder, airflow, start):
    complete(folder, 2)
    start(2)
    complete(folder, 1, completed=C[3])
    start(1)
    assert airflow.commits == [[T[2]], [T[1]]]


def test_a_batch_has_one_run(folder, airflow, start):
    complete(folder, 1)
    complete(folder, 2)
    assert start(1, per="batch") == [f"{RUN}{T[2]}"]
    assert airflow.commits == [[T[1], T[2]]]


@pytest.mark.parametrize("per", ["commit", "batch"])
@pytest.mark.parametrize("left", range(4))
def test_whenever_a_try_ends_no_commit_has_two_runs_and_none_is_without(
    folder, airflow, start, per, left
):
    complete(folder, 1)
    complete(folder, 2)
    airflow.left = left
    for number in (3, 4):
        with suppress(DagRunNotStartedError):
            start(1, per=per)
        complete(folder, number)
    airflow.left = None
    start(4, per=per)
    assert sorted(one for several in airflow.commits for one in several) == T[1:5]


@pytest.mark.parametrize("per", ["commit", "batch"])
def test_a_try_that_dies_before_its_checkpoint_moves_starts_nothing_twice(
    folder, airflow, start, monkeypatch, per
):
    complete(folder, 1)
    with monkeypatch.context() as dying:
        dying.setattr(Consumer, "move", dies)
        with pytest.raises(StateStoreError):
            start(1, per=per)
    complete(folder, 2)
    start(2, per=per)
    assert airflow.commits == [[T[1]], [T[2]]]


def test_a_checkpoint_that_was_set_anew_counts_and_not_the_old_plan(folder, airflow, start, state):
    complete(folder, 1)
    start(1)
    complete(folder, 2)
    airflow.left = 0
    with pytest.raises(DagRunNotStartedError, match=f"the run {RUN}{T[2]} of on_trips"):
        start(2)
    complete(folder, 3)
    airflow.left = None
    kept = state[PLAN_KEY]["after"]
    state[CHECKPOINT_KEY] = {**state[CHECKPOINT_KEY], "checkpoint": kept}
    start(3)
    assert airflow.commits == [[T[1]], [T[3]]]


def test_a_plan_for_another_table_is_not_carried_out(folder, airflow, start, state):
    complete(folder, 1)
    airflow.left = 0
    with pytest.raises(DagRunNotStartedError):
        start(1)
    airflow.left = None
    state[PLAN_KEY]["table"] = "/another"
    complete(folder, 2)
    start(1)
    assert airflow.commits == [[T[1]], [T[2]]]
    assert airflow.runs[f"{RUN}{T[1]}"]["table"] == str(folder.parent)


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_batch_that_another_try_has_started_is_not_started_again(
    folder, airflow, start, state, monkeypatch, cut
):
    """The machine of a try stands still while it stores its plan; a younger try does the work."""
    complete(folder, 1)
    store = Consumer.store

    def slow_store(consumer, key, value):
        if cut == "after":
            store(consumer, key, value)
        if key == PLAN_KEY:
            monkeypatch.setattr(Consumer, "store", store)
            complete(folder, 2)
            start(1, per="batch")
        if cut == "before":
            store(consumer, key, value)

    monkeypatch.setattr(Consumer, "store", slow_store)
    with pytest.raises(AirflowFailException, match="another run of"):
        start(1, per="batch")
    assert sorted(one for several in airflow.commits for one in several) == T[1:3]


def test_a_table_that_was_made_anew_has_a_run_for_each_of_its_commits(folder, airflow, start, caplog):
    complete(folder, 1)
    start(1)
    for path in (folder / "timeline").glob("*.commit*"):
        path.unlink()
    complete(folder, 2)
    start(2)
    assert airflow.commits == [[T[1]], [T[2]]]
    assert "All its commits are new" in caplog.text


def test_what_is_not_wanted_is_passed_over(folder, airflow, start):
    complete(folder, 1)
    complete(folder, 2, operation="INSERT")
    start(1, operations="insert")
    assert airflow.commits == [[T[2]]]
    with pytest.raises(AirflowSkipException):
        start(2, operations="insert")


@pytest.mark.parametrize(("per", "runs"), [("commit", [[1], [2], [3]]), ("batch", [[1, 2], [3]])])
def test_more_commits_than_a_plan_takes_have_another_plan(
    folder, airflow, start, state, monkeypatch, per, runs
):
    monkeypatch.setattr(commit_runs, "MOST_COMMITS", 2)
    for number in (1, 2, 3):
        complete(folder, number)
    start(1, per=per)
    assert airflow.commits == [[T[number] for number in run] for run in runs]
    assert PLAN_KEY not in state


def test_events_of_another_table_start_no_run_of_old_commits(folder, airflow, start):
    complete(folder, 1)
    other = {"payload": {"table": "/another", "commits": [{"instant": T[9]}]}}
    with pytest.raises(AirflowSkipException):
        start(extras=[other, {"instant": T[8]}, {"payload": "of someone's own"}])
    complete(folder, 2)
    start()
    assert airflow.commits == [[T[2]]]


def dies(*_):
    raise StateStoreError("the worker dies")


@pytest.mark.parametrize("release", HUDI_RELEASES)
@pytest.mark.parametrize("begins", ["event", "earliest"])
def test_commits_that_are_archived_since_a_first_run_without_a_table_have_runs(
    tmp_path, airflow, start, release, begins
):
    table = tmp_path / "table"
    with pytest.raises(AirflowSkipException):
        start(table=str(table), start=begins)
    unpack(GOLDEN / release / "history.zip", tmp_path)
    started = start(table=str(table), start=begins)
    snapshot = HudiTable(str(table)).snapshot()
    archived = [one for one in snapshot.history() if one.is_write]
    assert len(archived) > 1
    writes = {*archived, *snapshot.timeline.completed_writes()}
    metadata = {one: snapshot.reader.commit(one) for one in writes}
    known = {one.time for one, found in metadata.items() if found and not found.is_table_service}
    assert {one.removeprefix(RUN) for one in started} == known


@pytest.mark.parametrize("other", [{"operations": "delete"}, {"trigger_dag_id": "on_cities"}])
def test_two_operators_need_two_consumers(folder, start, airflow, other):
    complete(folder, 1)
    start(1, consumer="runs_of_on_trips")
    with pytest.raises(AirflowFailException, match="name another consumer"):
        start(1, consumer="runs_of_on_trips", **other)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("consumer", {"consumer": "on trips"}),
        ("per", {"per": "run"}),
        ("signed", {"signed": {"dag": "d"}}),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(start, field, given):
    with pytest.raises(ConfigurationError) as caught:
        start(**given)
    assert caught.value.field == field


def test_its_consumer_is_an_outlet_and_one_task_runs_at_a_time():
    task = HudiTriggerDagRunOperator(task_id="start", table="/t", trigger_dag_id="d", outlets=[])
    assert task.outlets == [consumer_asset("runs_of_d")]
    assert task.max_active_tis_per_dag == 1
