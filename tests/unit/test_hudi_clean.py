"""``HudiCleanOperator`` on tables made by hand; on real Hudi in ``tests/real/test_lazy_clean.py``."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from types import SimpleNamespace

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts import cleaning as module
from airflow_occ_provider.attempts.driver import Admitted
from airflow_occ_provider.attempts.record import RECORD_KEY
from airflow_occ_provider.attempts.submission import IDENTITY_VARIABLE
from airflow_occ_provider.attempts.submitter import Ended
from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.errors import (
    ConfigurationError,
    DataLossError,
    DriverKilledError,
    FenceError,
    LockTimeoutError,
    MisconfigurationError,
    OccError,
    WriterAliveError,
)
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.in_driver import clean as clean_job
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.task.run import open_journal
from tests.contract.in_memory_submitter import InMemorySubmitter
from tests.golden.table_archive import unpack
from tests.support.hand_made_tables import T1, T2, begin
from tests.support.memory_store import MemoryStore
from tests.support.residue import GOLDEN, LONG_AGO_S, RULE, beat, clean, complete
from tests.support.rollbacks import mark
from tests.support.task_state import Store, Task
from tests.support.write_runs import IN_PROCESS
from tests.unit.reports import fact, reported

LATE_S = 100
LOGS = GOLDEN.parents[1] / "logs"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "clean_job.py", line 20, in <module>',
    "py4j.protocol.Py4JJavaError: An error occurred while calling o1.clean.",
)
FAILED = reported([*TRACEBACK, ": java.lang.IllegalStateException: it broke"])
COLLIDED = reported(
    [
        *TRACEBACK,
        f": org.apache.hudi.exception.HoodieIOException: Failed to create file /t/{T2}.clean.inflight",
    ]
)
LOCKED = reported((LOGS / "lock_timeout.exit1.log").read_text().splitlines())
MISCONFIGURED = reported((LOGS / "stranger_unknown_lock_provider.exit1.log").read_text().splitlines())
LOCK = {"conn_type": "hudi_zookeeper_lock", "host": "zk:1"}


class CleanDriver:
    """A driver of a clean without Spark."""

    log_read = True

    def __init__(self, task, run, submission):
        self.drive = partial(task.drive, run, submission)
        self.store = run.task_run.context["task_state_store"]
        self.submitter, self.extensions, self.guards = self, None, ()
        task.driver = self

    def feed(self, extensions):
        self.extensions = extensions

    def run(self, listeners, guards):
        assert self.store[RECORD_KEY]["identity"], "a later try could not find it"
        self.guards = guards
        (listen,) = listeners
        self.exit_code = self.drive(listen)


class Clean(HudiCleanOperator):
    """In the place of Spark: what Hudi's lazy rollback does to the files, or a driver that fails.

    :param logs: what each failing driver writes, one after the other.
    """

    admitted = None
    failing_code = 1

    def prepare(self, folder, *logs):
        self.folder, self.logs, self.runs = folder, list(logs), 0
        return self

    def on_run(self):
        """What happens while a driver runs."""

    def _protected_run(self, context):
        run = super()._protected_run(context)
        run.spark.driver = partial(CleanDriver, self, run)
        if self.admitted:
            run.alone_if_unlocked = lambda *_: nullcontext(self.admitted)
        return run

    def drive(self, run, submission, listen):
        payload = json.loads(submission.payload)
        assert (payload["application"], payload["arguments"]) == (clean_job.__file__, [self.table])
        assert payload["options"]["hoodie.client.heartbeat.interval_in_ms"] == "60000"
        self.runs, self.payload = self.runs + 1, payload
        self.on_run()
        listen(fact("protected", options=20, followed=True))
        if self.logs:
            for line in self.logs.pop(0):
                listen(line)
            return self.failing_code
        for instant in self._clean_run(run).observe().pending.values():
            if not instant.fate.beating:
                clean(self.folder, instant.instant)
                (self.folder / ".heartbeat" / instant.instant).unlink(missing_ok=True)
        return 0


@pytest.fixture(autouse=True)
def connections(monkeypatch):
    """Spark, and a lock connection."""
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", json.dumps(LOCK))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local"}))
    monkeypatch.setenv("PATH", f"{pyspark_home() / 'bin'}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def task(folder, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    options = {"hoodie.client.heartbeat.interval_in_ms": RULE.interval_ms}

    def task(*logs, **given):
        given = {"task_id": "t", "table": str(folder.parent), "hudi_options": options, **given}
        return Clean(**given).prepare(folder, *logs)

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


def test_a_clean_that_only_its_lease_keeps_apart_commits_only_under_it(folder, task, context):
    dead(folder, T1)
    keeper, cleaner = SimpleNamespace(lost=None), task()
    cleaner.admitted = Admitted(is_fenced=False, keeper=keeper, lease_ttl_s=30.0)
    cleaner.execute(context)
    life = (cleaner.payload["ttl_s"], cleaner.payload["is_leased"])
    assert life == (30.0, True)
    guard = cleaner.payload["guard"]
    assert (guard["tables"], guard["is_required"]) == ([str(folder.parent)], True)
    assert cleaner.driver.extensions is keeper
    assert cleaner.driver.guards == [cleaner.admitted]


def test_a_dry_run_reports_the_same_and_runs_nothing(folder, task, context, capsys):
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
    assert "Remedy: no process waits for it; hadoop fs -rm" in log
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


def test_a_table_that_the_triggerer_cannot_watch_is_reported(folder, task, context):
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
    one = task(COLLIDED, COLLIDED)
    assert one.execute(context)["rolled_back"] == [T1]
    assert one.runs == 3
    with pytest.raises(FenceError, match=r"clean\.inflight"):
        task(COLLIDED, COLLIDED, COLLIDED).execute(context)


def test_a_clean_that_fails_otherwise_is_not(folder, task, context):
    one = task(FAILED)
    with pytest.raises(FenceError, match=r"failed \(exit code 1\): .*it broke"):
        one.execute(context)
    assert one.runs == 1


@pytest.mark.parametrize(
    ("log", "exit_code", "error"),
    [
        (LOCKED, 1, LockTimeoutError),
        (MISCONFIGURED, 1, MisconfigurationError),
        (FAILED, 137, DriverKilledError),
    ],
)
def test_a_failed_clean_has_the_error_that_its_log_shows(task, context, log, exit_code, error):
    one = task(log)
    one.failing_code = exit_code
    with pytest.raises(error):
        one.execute(context)
    assert one.runs == 1


def test_the_clean_of_an_earlier_try_is_ended_first(task, context):
    earlier = open_journal(context)
    earlier.store_identity()
    identity = earlier.record.identity
    survivor = subprocess.Popen(
        ["sleep", "60"], env={**os.environ, IDENTITY_VARIABLE: identity}, start_new_session=True
    )
    task().execute(context)
    assert survivor.wait(10) < 0


def test_the_clean_of_an_earlier_try_elsewhere_is_revoked_and_its_end_awaited(context):
    def waits(_, asked_to_end):
        asked_to_end.wait(60)
        return -15

    journal, revoked = open_journal(context), []
    journal.store_identity()
    submitter = InMemorySubmitter(waits, outlives_task=True)
    handle = submitter.submit(lambda _: None)

    def revoke(run, lease_ttl_s):
        revoked.append((run, lease_ttl_s))
        return {run: [handle]}

    spark = SimpleNamespace(revoke_unrecorded=revoke, submitter=lambda _: submitter)
    module.CleanRun(None, "/t", RULE, logging.getLogger()).end_earlier_drivers(journal, spark, 600.0)
    assert revoked == [(journal.record.identity, 600.0)]
    assert submitter.poll(handle) == Ended(-15)


def test_a_completed_write_without_its_files_fails_the_task(tmp_path, task, context):
    table = unpack(GOLDEN / "cleaned.zip", tmp_path)
    max(table.glob("p0/*.parquet"), key=lambda path: path.name.rpartition("_")[2]).unlink()
    one = task(table=str(table))
    with pytest.raises(DataLossError, match=r"1 of its 2 files are gone.*Remedy: find what removes"):
        one.execute(context)


def test_with_a_lock_of_one_process_a_clean_holds_the_table_exclusively(
    folder, task, context, monkeypatch
):
    """Queued behind a living writer, and none is granted while it runs."""
    dead(folder, T1)
    provider = "".join(f"{key}={value}" for key, value in IN_PROCESS.items())
    lock = {**LOCK, "extra": {"hudi_lock_options": provider}}
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", json.dumps(lock))
    nodes = MemoryStore()
    monkeypatch.setattr(HudiZookeeperLockHook, "leases", lambda _: Queue(nodes))
    line, one = Queue(nodes), task()
    whole = Scope.of(str(folder.parent), None)
    theirs = line.request(Request("rival", Owner(("d", "r", "writer")), (whole,), 60_000))
    with pytest.raises(TaskDeferred) as deferred:
        one.execute(context)
    assert one.runs == 0
    line.release(theirs)
    seen = []
    one.on_run = lambda: seen.extend(one.request.scopes for one in line.requests())
    resumed = getattr(one, deferred.value.method_name)(context, {"status": "granted"})
    assert resumed["rolled_back"] == [T1]
    assert seen == [(whole,)]
    assert not line.requests()


@pytest.mark.parametrize(
    "given",
    [{"application": "a.py"}, {"scope": ["p"]}, {"isolation": "serializable"}],
)
def test_what_belongs_to_a_write_is_refused(task, given):
    with pytest.raises(
        ConfigurationError, match=f"^{next(iter(given))}: (a clean has none|the driver runs a program)"
    ):
        task(**given)


def ghosts(capsys, table, *arguments):
    args = get_parser().parse_args(["hudi", "ghosts", str(table), *arguments])
    args.func(args)
    return capsys.readouterr().out


def test_the_command_shows_dead_writers_their_expiry_and_what_is_left(folder, capsys):
    assert "No pending writes and no residue of dead writers." in ghosts(capsys, folder.parent)
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
