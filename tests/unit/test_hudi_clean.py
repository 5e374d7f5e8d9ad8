"""``HudiCleanOperator`` on tables made by hand; on real Hudi in ``tests/real/test_lazy_clean.py``."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType, SimpleNamespace

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.errors import (
    ConfigurationError,
    DataLossError,
    FenceError,
    LockTimeoutError,
    OccError,
    WriterAliveError,
)
from airflow_occ_provider.jobs.attempt import IDENTITY_VARIABLE
from airflow_occ_provider.jobs.outcome import Outcome, Reading
from airflow_occ_provider.leases.line import Line
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators import hudi_clean as module
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.task_run import TaskRun
from tests.golden.table_archive import unpack
from tests.unit.test_claim import IN_PROCESS
from tests.unit.test_fence import mark
from tests.unit.test_record import Store, Task
from tests.unit.test_residue import GOLDEN, LONG_AGO_S, RULE, beat, clean, complete
from tests.unit.test_table import T1, T2, begin

LATE_S = 100
COLLISION = (f"HoodieIOException: Failed to create file /t/.hoodie/timeline/{T2}.clean.inflight",)
FAILED = (1, Reading(Outcome.JOB_ERROR, lines=("it broke",)))


class Clean(HudiCleanOperator):
    """In the place of Spark and the lock service: what Hudi's lazy rollback does to the files."""

    def prepare(self, folder, *ends):
        self.folder, self.ends, self.runs = folder, list(ends), 0
        return self

    known: Mapping[str, str] = MappingProxyType({})

    def _known_options(self, context, run):
        return self.known

    def on_run(self):
        """What happens while a driver runs."""

    def _prepare(self, context, run, order_token=""):
        options = {"hoodie.client.heartbeat.interval_in_ms": str(RULE.interval_ms)}
        return SimpleNamespace(options=options)

    def _run_ours(self, context, preparation, application, arguments):
        assert arguments == (self.table,)
        self.runs += 1
        self.on_run()
        if self.ends:
            return self.ends.pop(0)
        for instant in self._look().pending.values():
            if not instant.fate.beating:
                clean(self.folder, instant.instant)
                (self.folder / ".heartbeat" / instant.instant).unlink(missing_ok=True)
        return 0, Reading(Outcome.UNKNOWN)


@pytest.fixture
def task(folder, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)

    def task(*ends, **given):
        return Clean(task_id="t", table=str(folder.parent), **given).prepare(folder, *ends)

    return task


@pytest.fixture
def context():
    return {"ti": Task(1, 14), "task_state_store": Store()}


def dead(folder, instant, seconds=LONG_AGO_S):
    begin(folder, instant)
    beat(folder, instant, seconds)


def test_what_is_dead_is_cleaned_at_once_and_the_living_are_not_waited_for(folder, task, context):
    dead(folder, T1)
    begin(folder, T2)
    told = task().execute(context)
    assert told == {
        "dead": [T1],
        "rolled_back": [T1],
        "left": [],
        "cleaned_files": None,
        "dry_run": False,
    }
    assert context["task_state_store"]["hudi_write"]["succeeded"]


def test_a_dry_run_tells_the_same_and_runs_nothing(folder, task, context, capsys):
    dead(folder, T1)
    begin(folder, T2)
    complete(folder, "20261121092000000")
    beat(folder, "20261121092000000")
    one = task(dry_run=True, instants=[T2])
    told = one.execute(context)
    assert (told["dead"], told["rolled_back"], told["dry_run"]) == ([T1], [], True)
    assert [(left["kind"], left["instant"]) for left in told["left"]] == [
        ("heartbeat", "20261121092000000")
    ]
    assert one.runs == 0
    log = capsys.readouterr().out
    assert re.search(rf"commit {T1} is dead: its heartbeat expired [\d.]+ s ago; it would", log)
    assert f"commit {T2} is alive" in log
    assert "Remedy: nobody waits for it; hadoop fs -rm" in log
    assert json.loads(json.dumps(told)) == told


def test_an_overdue_writer_is_waited_for_until_it_beats_again_or_is_dead(folder, task, context):
    dead(folder, T1, LATE_S)
    one = task()
    with pytest.raises(TaskDeferred) as deferred:
        one.execute(context)
    trigger = deferred.value.trigger
    assert (trigger.instants, trigger.match) == ([T1], "all")
    assert trigger.until == ["alive", "dead", "committed", "rolled_back", "gone"]
    assert (trigger.interval_ms, trigger.tolerable_misses) == (60_000, 2)
    resume = getattr(one, deferred.value.method_name)
    beat(folder, T1, 1)
    assert resume(context, {"status": "reached"}, **deferred.value.kwargs)["rolled_back"] == []
    beat(folder, T1)
    assert resume(context, {"status": "reached"}, **deferred.value.kwargs)["rolled_back"] == [T1]


def test_a_named_writer_is_waited_for_however_well_it_beats(folder, task, context):
    begin(folder, T1)
    one = task(instants=[T1])
    with pytest.raises(TaskDeferred) as deferred:
        one.execute(context)
    assert deferred.value.trigger.until == ["dead", "committed", "rolled_back", "gone"]
    resume = getattr(one, deferred.value.method_name)
    with pytest.raises(TaskDeferred) as again:  # it beat once more just after the event
        resume(context, {"status": "reached"}, **deferred.value.kwargs)
    assert again.value.kwargs == deferred.value.kwargs
    assert again.value.trigger.deadline_ms == deferred.value.trigger.deadline_ms
    beat(folder, T1)
    assert resume(context, {"status": "reached"}, **deferred.value.kwargs)["rolled_back"] == [T1]


def test_what_the_triggerer_cannot_watch_is_told(folder, task, context):
    dead(folder, T1, LATE_S)
    with pytest.raises(OccError, match="no file system"):
        task().execute_after_wait(context, {"status": "error", "message": "no file system"})


def test_in_a_test_of_the_dag_a_named_writer_is_remembered(folder, task, context):
    begin(folder, T1)
    one = task(instants=[T1])
    with pytest.raises(WriterAliveError):  # dag.test() drops what the deferral kept
        one.execute_after_wait(context, {"status": "timeout"})
    assert one.runs == 0


def test_after_the_time_to_wait_only_a_named_writer_fails_the_task(folder, task, context):
    dead(folder, T1)
    dead(folder, T2, LATE_S)
    named = task(instants=[T2], wait_timeout=timedelta(0))
    with pytest.raises(WriterAliveError, match=f"still beating: {T2}; nothing was cleaned.*Remedy: "):
        named.execute(context)
    assert named.runs == 0
    assert task(wait_timeout=timedelta(0)).execute(context)["rolled_back"] == [T1]


def test_without_wait_what_is_dead_is_cleaned_now(folder, task, context):
    dead(folder, T1)
    dead(folder, T2, LATE_S)
    assert task(wait=False, instants=[T2]).execute(context)["rolled_back"] == [T1]


def test_a_clean_that_another_one_got_in_the_way_of_is_run_again(folder, task, context):
    dead(folder, T1)
    collided = (1, Reading(Outcome.JOB_ERROR, lines=COLLISION))
    one = task(collided, collided)
    assert one.execute(context)["rolled_back"] == [T1]
    assert one.runs == 3
    with pytest.raises(FenceError, match=r"clean\.inflight"):
        task(collided, collided, collided).execute(context)


def test_a_clean_that_fails_otherwise_is_not(folder, task, context):
    one = task(FAILED)
    with pytest.raises(FenceError, match=r"failed \(exit code 1\): it broke"):
        one.execute(context)
    assert one.runs == 1
    locked = (1, Reading(Outcome.LOCK_TIMEOUT, lines=("org.apache.hudi.x.HoodieLockException",)))
    with pytest.raises(LockTimeoutError):
        task(locked).execute(context)


def test_the_clean_of_an_earlier_try_is_ended_first(task, context):
    identity = TaskRun(context).record.identity
    survivor = subprocess.Popen(
        ["sleep", "60"], env={**os.environ, IDENTITY_VARIABLE: identity}, start_new_session=True
    )
    task().execute(context)
    assert survivor.wait(10) < 0


def test_a_completed_write_without_its_files_fails_the_task(tmp_path, context):
    table = unpack(GOLDEN / "cleaned.zip", tmp_path)
    max(table.glob("p0/*.parquet"), key=lambda path: path.name.rpartition("_")[2]).unlink()
    task = Clean(task_id="t", table=str(table)).prepare(table / ".hoodie")
    with pytest.raises(DataLossError, match=r"1 of its 2 files are gone.*Remedy: find what removes"):
        task.execute(context)


def test_where_the_lock_excludes_nobody_a_clean_holds_the_table_alone(folder, task, context, queue):
    """Queued behind a living writer, and none is granted while it runs."""
    dead(folder, T1)
    line, one = Line(queue), task()
    one.known = IN_PROCESS
    whole = Scope.of(str(folder.parent), None)
    theirs = line.request(Request("rival", Owner(("d", "r", "writer")), (whole,), 60_000))
    with pytest.raises(TaskDeferred) as deferred:
        one.execute(context)
    assert one.runs == 0
    line.release(theirs)
    seen = []
    one.on_run = lambda: seen.extend(one.request.scopes for one in line.line())
    resumed = getattr(one, deferred.value.method_name)(context, {"status": "granted"})
    assert resumed["rolled_back"] == [T1]
    assert seen == [(whole,)]
    assert not line.line()


@pytest.mark.parametrize(
    "given", [{"application": "a.py"}, {"scope": ["p"]}, {"admission": "queue"}, {"key_safe": True}]
)
def test_what_belongs_to_a_write_is_refused(task, given):
    with pytest.raises(ConfigurationError, match=f"^{next(iter(given))}: a clean has none"):
        task(**given)


def ghosts(capsys, table, *arguments):
    args = get_parser().parse_args(["hudi", "ghosts", str(table), *arguments])
    args.func(args)
    return capsys.readouterr().out


def test_the_command_tells_who_is_dead_when_and_what_is_left(folder, capsys):
    assert "Nothing is pending, and nothing is left." in ghosts(capsys, folder.parent)
    dead(folder, T1)
    begin(folder, T2)
    mark(folder, "20261121092000000")
    beat(folder, "20261121092000000")
    told = json.loads(ghosts(capsys, folder.parent, "--output", "json"))
    assert [(one["kind"], one["instant"], one["fate"]) for one in told] == [
        ("write", T1, "dead"),
        ("write", T2, "alive"),
        ("heartbeat", "20261121092000000", None),
        ("markers", "20261121092000000", None),
        ("data_files", "20261121092000000", None),
    ]
    assert told[0]["dead_in_ms"] == 0
    assert 110_000 < told[1]["dead_in_ms"] <= 120_000
    assert all(one["proof"] and one["remedy"] and one["path"] for one in told)
    patient = ("--heartbeat-interval-ms", "600000", "--tolerable-misses", "3", "--output", "json")
    assert json.loads(ghosts(capsys, folder.parent, *patient))[0]["fate"] == "alive"
    printed = ghosts(capsys, folder.parent)
    assert "HoodieRepairTool" in "".join(printed.split())
