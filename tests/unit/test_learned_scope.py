"""What a task learns from its last commits, on a table made by hand and a queue in memory."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts import learned_scope, write
from airflow_occ_provider.attempts.attempt import new_attempt
from airflow_occ_provider.attempts.driver import Admitted
from airflow_occ_provider.attempts.identity import Signature, UnwrittenSignature
from airflow_occ_provider.attempts.jobs import MainClass, PythonFile
from airflow_occ_provider.attempts.learned_scope import with_hint
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.record import LearnedScope, TaskRecord
from airflow_occ_provider.attempts.scope import Claim
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.attempts.write_attempt import WriteAttempt
from airflow_occ_provider.attempts.write_spec import WritePolicy, WriteSpec
from airflow_occ_provider.errors import TableUnreadableError, WriteConflictError
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.in_driver.run_main import STREAMER
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope, digest
from airflow_occ_provider.storage.instant_reader import InstantReader
from tests.support.avro_metadata import avro
from tests.support.leased_commits import commit as outcome
from tests.support.policies import with_policy
from tests.support.session_site import SITE
from tests.support.task_state import Store, Task
from tests.support.write_runs import IN_PROCESS, Write

OWN = Signature("another run", "d", "r0", "t", site=SITE)
REQUESTS = (
    "No scope was given; each of the last {} runs of this task changed the same files of {}: "
    "it is queued with other tasks that change them."
)
TWICE = range(2)
F1, F2, HOT = (f"{path}/{digest('f-0')}" for path in ("dt=1", "dt=2", "hot"))


@pytest.fixture
def commits(folder):
    """Adds a commit that is younger than all before."""

    def add(*partitions, by=OWN, operation="UPSERT", replaced=(), new=(), groups=("f-0",), run=""):
        number = len(list((folder / "timeline").glob("*commit")))
        by = by and replace(by, identity=run or f"run {number}")
        record = {
            "operationType": operation,
            "extraMetadata": by.options() if by else {},
            "partitionToWriteStats": {
                **{path: [statistic()] for path in new},
                **{
                    path: [statistic(one, prevCommit="20261120092500000") for one in groups]
                    for path in partitions
                },
            },
            "partitionToReplaceFileIds": {path: ["g-0"] for path in replaced},
        }
        action = "replacecommit" if replaced or operation == "CLUSTER" else "commit"
        name = f"202611210925{number:05}_20261122092559999.{action}"
        (folder / "timeline" / name).write_bytes(avro(record))

    return add


def statistic(group="f-0", prevCommit="null"):  # noqa: N803 - Hudi's name
    changes = {"numInserts": 1, "numUpdateWrites": 0, "numDeletes": 0}
    return {"fileId": group, "prevCommit": prevCommit, **changes}


@pytest.fixture(autouse=True)
def connection(monkeypatch):
    spark = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, store):
    """Makes one process of the task's run: the operator, and its protected run."""

    def start(number=1, max_tries=14, table=str(folder.parent), **given):
        arguments = {"task_id": "t", "application": "job.py", "table": table}
        context = {"ti": Task(number, max_tries), "task_state_store": store}
        task = Write(**arguments, **with_policy({"learn_scope": True, **given}))
        return task, context, task._protected_run(context)

    return start


@pytest.fixture
def asked(start, folder):
    """Returns what a new process requests beside the whole table, shared."""

    def asked(number=1, options=None, **given):
        run = start(number, **given)[2]
        with run.admitted(options or {}) as admitted:
            table = str(folder.parent)
            assert admitted.scope == Scope(table, Mode.SHARED)
            beside = run.claim.beside(admitted.scope)
            assert not beside or beside[0].table == f"{table}/.hoodie/hints"
            return beside[0].partitions if beside else ()

    return asked


def test_a_task_requests_what_its_last_commits_changed(commits, asked, capsys):
    for _ in TWICE:
        commits("dt=1")
    assert asked() == (F1,)
    assert REQUESTS.format(2, "dt=1") in capsys.readouterr().out


def test_one_run_is_no_habit_however_often_it_commits(commits, asked, capsys):
    for _ in range(3):
        commits("dt=1", run="one")
    assert asked() == ()
    said = capsys.readouterr().out
    assert "only one of this task's runs is among the table's newest 30 commits" in said


def test_all_commits_of_a_run_count(commits, asked):
    for run in ("one", "two"):
        for path in ("dt=1", "dt=2"):
            commits(path, run=run)
    assert asked() == (F1, F2)


def test_a_run_without_work_does_not_count(commits, asked):
    for _ in TWICE:
        commits("dt=1")
    commits()
    assert asked() == (F1,)


def test_what_each_of_the_last_three_changed_counts(commits, asked, capsys):
    commits("dt=4")
    for more in ("dt=1", "dt=2", "dt=3"):
        commits("hot", more)
    assert asked() == (HOT,)
    assert REQUESTS.format(3, "hot") in capsys.readouterr().out


def test_a_new_partition_each_day_is_no_habit(commits, asked, capsys):
    for day in range(4):
        commits(f"dt={day}")
    assert asked() == ()
    said = capsys.readouterr().out
    assert "no file group was changed by each of the last 3 runs of this task" in said


def test_other_file_groups_of_one_partition_are_no_habit(commits, asked, store):
    commits("hot", groups=("f-1", "f-2"))
    commits("hot", groups=("f-2", "f-3"))
    assert asked() == (f"hot/{digest('f-2')}",)
    commits("hot", groups=("f-3",))
    store.clear()
    assert asked() == ()


def test_an_overwrite_stands_for_its_partition(commits, asked):
    for _ in TWICE:
        commits("dt=1", replaced=("dt=2",), operation="INSERT_OVERWRITE")
    assert asked() == (F1, "dt=2")


def test_the_groups_that_a_write_replaced_count_once(commits, asked):
    for _ in TWICE:
        commits("dt=2", replaced=("dt=2",), groups=("g-0",), operation="INSERT_OVERWRITE")
    assert asked() == ("dt=2",)


def test_a_table_without_partitions_has_file_groups_too(commits, asked, store):
    for _ in TWICE:
        commits("")
    assert asked() == (digest("f-0"),)
    for _ in range(3):
        commits(replaced=("",), operation="INSERT_OVERWRITE_TABLE")
    store.clear()
    assert asked() is None


def test_it_can_be_switched_off(commits, asked, store):
    for _ in TWICE:
        commits("dt=1")
    assert asked(learn_scope=False) == ()
    assert store["hudi_write"]["learned"] is None


@pytest.mark.parametrize(
    "other",
    [
        {"site": "there"},
        {"site": ""},
        {"dag_id": "e"},
        {"task_id": "u"},
        {"map_index": 0},
    ],
    ids=str,
)
def test_another_tasks_commits_teach_nothing(commits, asked, other):
    for _ in TWICE:
        commits("dt=1")
        commits("dt=2", by=replace(OWN, **other))
        commits("dt=3", by=None)
    assert asked() == (F1,)


def test_only_other_tasks_commits_teach_nothing(commits, asked, capsys):
    commits("dt=2", by=replace(OWN, task_id="u"))
    assert asked() == ()
    said = capsys.readouterr().out
    assert "No scope was given; none of this task's runs is among the table's newest 30 commits." in said


@pytest.mark.parametrize("operation", ["CLUSTER", "COMPACT"])
def test_a_table_service_that_copied_the_labels_teaches_nothing(commits, asked, operation):
    for _ in TWICE:
        commits("dt=1")
    for _ in range(3):
        commits("dt=2", operation=operation)
    assert asked() == (F1,)


def test_a_site_is_compared_as_hudi_writes_it(commits, asked, monkeypatch):
    monkeypatch.setenv("AIRFLOW__HUDI_OCC__SITE_ID", "two  words")
    for _ in TWICE:
        commits("dt=1", by=replace(OWN, site="two  words"))
    assert asked() == (F1,)


@pytest.mark.parametrize(("others", "found"), [(28, (F1,)), (29, ())])
def test_only_the_newest_commits_are_read(commits, asked, monkeypatch, others, found):
    for _ in TWICE:
        commits("dt=1")
    for _ in range(others):
        commits("dt=2", by=None)
    read, original = [], InstantReader.commit
    monkeypatch.setattr(
        InstantReader, "commit", lambda self, one: (read.append(one), original(self, one))[1]
    )
    assert asked() == found
    assert len(read) == 30


def test_no_more_commits_are_read_than_count(commits, asked, monkeypatch):
    for _ in range(9):
        commits("dt=1")
    read, original = [], InstantReader.commit
    monkeypatch.setattr(
        InstantReader, "commit", lambda self, one: (read.append(one), original(self, one))[1]
    )
    asked()
    assert len(read) == learned_scope.MOST_RUNS + 1  # which shows that the third has no more


def test_an_archived_commit_teaches_nothing(commits, asked, monkeypatch):
    for _ in TWICE:
        commits("dt=1")
    monkeypatch.setattr(InstantReader, "commit", lambda *_: None)
    assert asked() == ()


@pytest.mark.parametrize("number", [50, 51])
def test_of_too_many_file_groups_none_counts(commits, asked, capsys, number):
    for _ in TWICE:
        commits("hot", "less", groups=[f"f-{one}" for one in range(number)])
    assert len(asked()) == (100 if number == 50 else 0)
    said = capsys.readouterr().out
    assert ("changed the same 102 file groups, too many to be queued for" in said) is (number == 51)


def test_new_files_meet_no_other_writer(commits, asked, capsys):
    for _ in TWICE:
        commits(new=("dt=1", "dt=2"), operation="BULK_INSERT")
    assert asked() == ()
    assert "no file group was changed by each of the last 2 runs" in capsys.readouterr().out


def test_new_files_beside_changed_ones_are_left_out(commits, asked):
    for _ in TWICE:
        commits("dt=2", new=("dt=3",))
    assert asked() == (F2,)


def test_a_table_that_does_not_exist_yet_leaves_it_unknown(asked, folder):
    (folder / "hoodie.properties").unlink()
    (folder / "timeline" / "history").rmdir()
    (folder / "timeline").rmdir()
    (folder / ".heartbeat").rmdir()
    assert asked() == ()


def test_a_commit_that_cannot_be_read_fails_nothing(commits, asked, folder, capsys):
    commits("dt=1")
    (folder / "timeline" / "20261121092599999_20261122092559999.commit").write_bytes(b"Obj\x01cut")
    assert asked() == ()
    said = capsys.readouterr().out
    assert "No scope was given; nothing was learned of earlier runs: " in said
    assert "cannot be decoded" in said


def test_a_declared_scope_wins(commits, start, store, folder):
    for _ in TWICE:
        commits("dt=1")
    run = start(scope=["dt=7"])[2]
    with run.admitted({}) as admitted:
        assert admitted.scope == Scope.of(str(folder.parent), ["dt=7"])
        assert run.claim.beside(admitted.scope) == ()
    assert store["hudi_write"]["learned"] is None
    claim = with_hint(Claim("/t", ("a",), learns=True), TaskRecord(learned=LearnedScope("/t", ("b",))))
    assert claim.scope({}, None) == Scope.of("/t", ["a"])
    assert claim.beside(Scope.of("/t", ["a"])) == ()


@pytest.mark.parametrize(
    ("given", "options"),
    [({"isolation": "serializable"}, {}), ({}, IN_PROCESS)],
    ids=["serializable", "a lock of one process"],
)
def test_where_the_lease_alone_protects_a_hint_is_not_enough(
    commits, start, folder, store, given, options
):
    for _ in TWICE:
        commits("dt=1")
    run = start(**given)[2]
    with run.admitted(options) as admitted:
        assert admitted.scope == Scope.of(str(folder.parent), None)
    assert store["hudi_write"]["learned"] is None
    run.journal.learn(LearnedScope(str(folder.parent), ("dt=1",)))  # before its options changed
    again = start(**given)[2]
    with again.admitted(options) as admitted:
        assert admitted.scope == Scope.of(str(folder.parent), None)
        assert again.claim.beside(admitted.scope) == ()


def test_a_writer_that_is_not_queued_learns_nothing(commits, start, store):
    commits("dt=1")
    with start(admission="off")[2].admitted({}) as admitted:
        assert admitted.scope is None
    assert "hudi_write" not in store


def test_a_job_whose_commits_are_not_signed_learns_nothing():
    def learns(job, *, asked=True):
        policy = WritePolicy(learn_scope=asked)
        return WriteSpec("/t", job, policy=policy).claim(None, logging.getLogger("test")).learns

    assert learns(PythonFile("job.py"))
    assert not learns(PythonFile("job.py"), asked=False)
    assert not learns(MainClass(STREAMER, ""))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"scope": ["dt=1"]}, "scope is given"),
        ({"isolation": "serializable"}, "isolation='serializable' needs a scope that is certain"),
        ({"admission": "off"}, "the task is not queued"),
    ],
)
def test_what_makes_learning_useless_is_logged(start, given, why, capsys):
    assert not start(**given)[2].claim.learns
    assert f"learn_scope has no effect: {why}." in capsys.readouterr().out


def test_tasks_of_one_habit_are_queued_and_others_run_beside(commits, start, queue, folder, capsys):
    for _ in TWICE:
        commits("dt=1")
    line, table = Queue(queue), str(folder.parent)

    def add(name, *paths):
        hinted = Claim(table, None, hint=paths)
        scopes = (shared, *hinted.beside(shared))
        line.request(Request(name, Owner(("d", "r", name)), scopes, 60_000))

    shared = Scope(table, Mode.SHARED)
    add("unknown")
    add("beside", F2, "dt=1/other")
    with start()[2].admitted({}):
        pass
    add("rival", F1)
    with pytest.raises(WaitNeeded), start()[2].admitted({}):
        raise AssertionError("not reached")
    said = capsys.readouterr().out
    assert f"d / r / rival (exclusive, {F1} of {table}/.hoodie/hints, since" in said


def test_a_learned_habit_never_runs_beside_a_declared_scope(commits, start, queue, folder):
    for _ in TWICE:
        commits("dt=1")
    declared = (Scope.of(str(folder.parent), ["dt=2"]),)
    Queue(queue).request(Request("declared", Owner(("d", "r", "u")), declared, 60_000))
    with pytest.raises(WaitNeeded), start()[2].admitted({}):
        raise AssertionError("not reached")


def rival_of(queue, folder):
    whole = (Scope.of(str(folder.parent), None),)
    return Queue(queue).request(Request("rival", Owner(("d", "r", "u")), whole, 60_000))


def place(store):
    entry = TaskRecord.from_json(store["hudi_write"]).queue_entry
    return entry.request_id, entry.asked


def test_a_queued_task_keeps_its_place_while_the_table_changes(
    commits, start, queue, folder, store, capsys
):
    for _ in TWICE:
        commits("dt=1")
    theirs = rival_of(queue, folder)
    write, context, _ = start()
    with pytest.raises(TaskDeferred) as deferred:
        write.execute(context)
    before, tokens = place(store), [one.token for one in Queue(queue).requests()]
    for _ in range(3):
        commits("dt=2", by=replace(OWN, run_id="r1"))
    Queue(queue).release(theirs)
    again, context, run = start()
    with run.admitted({}):
        assert run.claim.hint == (F1,)
        assert place(store) == before
        assert [one.token for one in Queue(queue).requests()] == tokens[1:]
    assert capsys.readouterr().out.count("No scope was given") == 1
    getattr(again, deferred.value.method_name)(context, {"status": "granted"})
    assert again.ran == 1


def test_a_queued_task_that_found_nothing_keeps_its_place_too(commits, start, queue, folder, store):
    theirs = rival_of(queue, folder)
    with pytest.raises(WaitNeeded), start()[2].admitted({}):
        raise AssertionError("not reached")
    before = place(store)
    for _ in TWICE:
        commits("dt=2")
    Queue(queue).release(theirs)
    again = start(2)[2]
    with again.admitted({}):
        assert again.claim.hint == ()
        assert place(store) == before


def test_a_task_that_is_cleared_after_its_success_learns_anew(commits, start, asked):
    for _ in TWICE:
        commits("dt=1", "dt=2")
    run = start()[2]
    with run.admitted({}):
        pass
    run.journal.succeed()
    commits("dt=2")
    assert asked() == (F1, F2)
    assert asked(2, max_tries=15) == (F2,)


def test_what_was_learned_of_one_table_is_no_hint_for_another(commits, asked, start, tmp_path):
    for _ in TWICE:
        commits("dt=1")
    other = start(table=str(tmp_path / "other"))[2]
    with other.admitted({}):
        assert other.claim.hint == ()
    assert asked() == (F1,)
    with other.admitted({}):
        assert other.claim.hint == ()


def test_an_attempt_that_is_continued_learns_nothing_new(commits, start, folder, store):
    run = start()[2]
    with run.admitted({}), start()[2].admitted({}, begun=begun(run)):
        pass
    for _ in TWICE:
        commits("dt=1")
    store["hudi_write"]["learned"] = None  # it was started before the task learned
    again = start()[2]
    with again.admitted({}, begun=begun(again)):
        assert again.claim.hint == ()


def begun(run):
    return new_attempt(run.journal, "/t")


def test_a_lost_writer_requests_what_it_planned(commits, start, folder, monkeypatch):
    for _ in TWICE:
        commits("dt=1")
    run = start()[2]
    with run.admitted({}):
        pass
    attempt = write.Write(run).write_attempt()
    planned = ("dt=2",)
    monkeypatch.setattr(
        "airflow_occ_provider.attempts.write_attempt.planned_partitions", lambda *_: planned
    )
    with pytest.raises(WriteConflictError):
        attempt.judge(Settlement(Outcome.COMMIT_CONFLICT), Admitted(), HeartbeatRule(60_000, 2))
    with start(2)[2].admitted({}) as admitted:
        assert admitted.scope == Scope.of(str(folder.parent), ["dt=2"])


def test_a_lost_writer_whose_plan_is_unknown_requests_the_whole_table(commits, start, folder):
    for _ in TWICE:
        commits("dt=1")
    run = start()[2]
    run.journal.escalate(())
    with start(2)[2].admitted({}) as admitted:
        assert admitted.scope == Scope.of(str(folder.parent), None)


def test_only_a_claim_that_learns_takes_what_was_learned_of_its_table():
    claim = Claim("/t", None, learns=True)
    learned = TaskRecord(learned=LearnedScope("/t", ("a",)))
    assert with_hint(claim, learned).hint == ("a",)
    assert with_hint(claim, TaskRecord(learned=LearnedScope("/other", ("a",)))) == claim
    assert with_hint(claim, TaskRecord()) == claim
    once = replace(claim, learns=False)  # it was switched off between two tries
    assert with_hint(once, learned) == once


def test_what_a_write_that_gave_way_planned_is_a_hint_of_any_claim():
    record = TaskRecord(learned=LearnedScope("/t", ("a",)), gave_way=("b",))
    claim = Claim("/t", None)
    assert with_hint(claim, record).hint == ("b",)
    assert with_hint(replace(claim, learns=True), record).hint == ("a", "b")
    unpartitioned = with_hint(claim, TaskRecord(gave_way=("",)))
    (hint,) = unpartitioned.beside(unpartitioned.scope({}, None))
    assert hint == Scope.of("/t/.hoodie/hints", None)


def test_a_writer_that_gave_way_under_a_shared_lease_writes_beside_others(
    commits, start, folder, monkeypatch
):
    run = start()[2]
    with run.admitted({}) as admitted:
        assert admitted.is_shared
        attempt = write.Write(run).write_attempt()
        monkeypatch.setattr(
            "airflow_occ_provider.attempts.write_attempt.planned_partitions", lambda *_: ("dt=2",)
        )
        with pytest.raises(WriteConflictError):
            attempt.judge(Settlement(Outcome.YIELDED), admitted, HeartbeatRule(60_000, 2))
    with start(2)[2].admitted({}) as admitted:
        assert admitted.scope == Scope.of(str(folder.parent), None, Mode.SHARED)
    assert start(2)[2].claim.hint == ("dt=2",)


@pytest.mark.parametrize(
    ("outcome", "planned", "scope"),
    [
        (Outcome.COMMIT_CONFLICT, ("dt=2",), None),
        (Outcome.YIELDED, (), None),
        (Outcome.YIELDED, ("dt=2",), ["dt=2"]),
    ],
    ids=["lost", "unknown", "exclusive"],
)
def test_all_other_losers_write_alone(commits, start, folder, monkeypatch, outcome, planned, scope):
    run = start(scope=scope)[2]
    with run.admitted({}) as admitted:
        attempt = write.Write(run).write_attempt()
        monkeypatch.setattr(
            "airflow_occ_provider.attempts.write_attempt.planned_partitions", lambda *_: planned
        )
        with pytest.raises(WriteConflictError):
            attempt.judge(Settlement(outcome), admitted, HeartbeatRule(60_000, 2))
    with start(2, scope=scope)[2].admitted({}) as admitted:
        assert admitted.scope == Scope.of(str(folder.parent), planned or None)


def test_the_work_is_the_same_whatever_was_learned(commits, start):
    before = start()[2].work_digest
    for _ in TWICE:
        commits("dt=1")
    run = start()[2]
    with run.admitted({}):
        assert run.work_digest == before


def test_a_commit_outside_what_was_learned_is_not_reported(commits, start, monkeypatch, capsys):
    for _ in TWICE:
        commits("dt=1")
    run = start()[2]
    landed = outcome("dt=1", "dt=2")
    monkeypatch.setattr(
        WriteAttempt, "_run", lambda *_, **__: Settlement(Outcome.COMMITTED, commit=landed, exit_code=0)
    )
    monkeypatch.setattr(type(run.spark), "forget", lambda *_: None)
    prepared, driver = Preparation(None, None, {}, "", None), SimpleNamespace(planned={})
    with run.admitted({}) as admitted:
        attempt = write.Write(run).write_attempt()
        assert attempt._outcome(driver, prepared, admitted, begun(run)) is landed
    assert "outside its" not in capsys.readouterr().out


def test_a_record_keeps_it(store):
    record = TaskRecord("i", learned=LearnedScope("/t", ("b", "a")), gave_way=("p",))
    kept = record.to_json()
    assert kept["learned"] == {"table": "/t", "paths": ["b", "a"]}
    assert TaskRecord.from_json(kept) == record
    del kept["learned"]["paths"]  # of an earlier release, and then of one before it
    assert TaskRecord.from_json(kept).learned == LearnedScope("/t")
    del kept["learned"]
    assert TaskRecord.from_json(kept).learned is None
    assert record.again().learned is None


def test_the_labels_of_a_task_are_those_of_all_its_runs():
    later = replace(OWN, identity="i", run_id="r9", try_number=7, latest_instant="1", order_token="2")
    assert later.task == OWN.task == Signature.from_extra(later.options()).task
    assert UnwrittenSignature("i", "d", "r", "t", site=SITE).task == OWN.task


def test_a_failing_storage_is_no_reason_to_fail(start, monkeypatch, capsys):
    def refuses(*_, **__):
        raise TableUnreadableError("the storage is away")

    run = start()[2]
    monkeypatch.setattr(run.table, "snapshot", refuses)
    with run.admitted({}) as admitted:
        assert admitted.scope.mode is Mode.SHARED
    assert "nothing was learned of earlier runs: the storage is away." in capsys.readouterr().out
