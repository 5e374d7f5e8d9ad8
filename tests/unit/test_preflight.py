"""What a try waits for before its driver starts: on tables made by hand, and on golden ones."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts import rivals
from airflow_occ_provider.attempts.record import AttemptRecord, PreflightRecord, TaskRecord
from airflow_occ_provider.attempts.rivals import Preflight, find_elders, refusing_states
from airflow_occ_provider.attempts.scope import Claim
from airflow_occ_provider.errors import ConfigurationError, TableUnreadableError
from airflow_occ_provider.hudi.conflict.strategy import STRATEGY_OPTION, Strategy
from airflow_occ_provider.hudi.format.instant import State
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_plans
from airflow_occ_provider.task.run import open_journal
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.support.hand_made_tables import SIGNATURE, T0, T1, T2, C, add
from tests.support.policies import with_policy
from tests.support.residue import beat
from tests.support.task_state import Store, Task
from tests.support.via_tasks import LivyOperator, starter
from tests.support.write_runs import Write

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
RULE = HeartbeatRule(60_000, 2)
SCOPE = ["p=1"]
REACHED = {"status": "reached"}
PLAN = "hoodie.clustering.updates.strategy"
ALLOWS = "org.apache.hudi.client.clustering.update.strategy.SparkAllowUpdateStrategy"
OPERATION = "hoodie.datasource.write.operation"
ROLLS_BACK = "hoodie.clustering.rollback.pending.replacecommit.on.conflict"


def write(folder, time, partition="p=1", operation="UPSERT", action="commit"):
    """Leave a write whose workload profile names one file group, or a partition that is replaced."""
    begun = {"numInserts": 0, "numUpdateWrites": 1, "numDeletes": 0}
    stat = {"fileId": "" if operation.startswith("INSERT_OVERWRITE") else "f-0", **begun}
    profile = {"operationType": operation, "partitionToWriteStats": {partition: [stat]}}
    timeline = folder / "timeline"
    (timeline / f"{time}.{action}.requested").touch()
    inflight = f"{time}.inflight" if action == "commit" else f"{time}.{action}.inflight"
    (timeline / inflight).write_text(json.dumps(profile))
    beat(folder, time, 0)


def cluster(folder, time, partition="p=1", extra=None):
    """Leave the plan of a clustering that no process runs."""
    groups = [{"slices": [{"partitionPath": partition, "fileId": "f-0"}]}]
    plan = {"clusteringPlan": {"inputGroups": groups}, "extraMetadata": extra or {}}
    (folder / "timeline" / f"{time}.clustering.requested").write_text(json.dumps(plan))


def end(folder, time):
    add(folder, f"{time}_{C}.commit")
    (folder / ".heartbeat" / time).unlink()


def found(table, *partitions, own=(), **more):
    return tuple(
        elder.instant
        for elder in find_elders(table, table.snapshot(missing_ok=True), partitions, own, RULE, **more)
    )


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, store):
    def start(number=1, **given):
        given = {"task_id": "t", "application": "job.py", "table": str(folder.parent), **given}
        context = {"ti": Task(number, 14), "task_state_store": store}
        return Write(**{"scope": SCOPE, **with_policy(given)}), context

    return start


def waits(task, call, *arguments):
    """Have a step defer for a preflight, and return what resumes it and the trigger."""
    with pytest.raises(TaskDeferred) as deferred:
        call(*arguments)
    trigger = deferred.value.trigger
    assert isinstance(trigger, HudiHeartbeatTrigger)
    assert task.ran == 0
    return getattr(task, deferred.value.method_name), trigger


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_what_certainly_touches_a_partition_counts_and_new_records_alone_do_not(release, tmp_path):
    path = unpack(GOLDEN / release / "live_direct.zip", tmp_path)
    table = HudiTable(str(path))
    pending = table.snapshot().timeline.pending_writes()
    assert found(table, "p0", "p1", "p2") == ()  # their heartbeats have expired
    for one in pending:
        beat(path / ".hoodie", one.time, 0)
    upsert, insert, overwrite, delete, *_ = (one.time for one in pending)
    assert found(table, "p1") == (upsert,)
    assert found(table, "p2") == (insert, delete)  # it has begun to write to a small file
    assert found(table, "p2", own=[insert]) == (delete,)
    assert found(table, "p0") == (overwrite,)  # a bulk insert adds file groups
    assert found(table, "p7", "p8", "p9") == ()
    assert found(table) == ()
    (path / ".hoodie" / ".heartbeat" / upsert).unlink()
    assert found(table, "p0", "p1") == (overwrite,)


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_a_pending_clustering_of_a_partition_counts_whether_a_process_runs_it_or_not(release, tmp_path):
    table = HudiTable(str(unpack(GOLDEN / release / "clustering.zip", tmp_path)))
    inflight, planned = (one.time for one in pending_plans(table.snapshot(), Service.CLUSTERING, RULE))
    assert found(table, "p1") == (inflight,)
    assert found(table, "p2/x", "p9") == (planned,)
    assert found(table, "p1", "p2", own=[planned]) == (inflight,)
    assert found(table, "p0") == found(table) == ()
    assert found(table, "p1", "p2", clusterings=()) == ()
    assert found(table, "p1", "p2", clusterings=[State.INFLIGHT]) == (inflight,)


def test_an_overwrite_of_the_whole_table_counts_for_any_writer(folder, table):
    write(folder, T1, "p=7", "INSERT_OVERWRITE_TABLE", "replacecommit")
    write(folder, T2, "p=7", "INSERT_OVERWRITE", "replacecommit")
    assert found(table) == found(table, "p=1") == (T1,)
    assert found(table, "p=7") == (T1, T2)
    assert str(find_elders(table, table.snapshot(), SCOPE, (), RULE)[0]) == (
        f"{T1} (INSERT_OVERWRITE_TABLE by a running writer)"
    )


def test_a_write_that_is_only_requested_and_a_table_without_any_count_not(folder, table, tmp_path):
    write(folder, T1)
    (folder / "timeline" / f"{T1}.inflight").unlink()
    assert found(table, *SCOPE) == ()
    missing = HudiTable(str(tmp_path / "none"))
    assert find_elders(missing, missing.snapshot(missing_ok=True), SCOPE, (), RULE) == ()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [State.INFLIGHT]),
        ({OPERATION: "upsert"}, [State.REQUESTED, State.INFLIGHT]),
        ({OPERATION: "insert"}, []),
        ({OPERATION: "BULK_INSERT"}, []),
        ({PLAN: ALLOWS.replace("Allow", "Reject")}, [State.INFLIGHT]),
        ({PLAN: ALLOWS}, []),
        ({ROLLS_BACK: "true"}, []),
        ({ROLLS_BACK: "false"}, [State.INFLIGHT]),
        ({STRATEGY_OPTION: Strategy.PREFER_WRITER.class_name}, []),
        ({STRATEGY_OPTION: Strategy.SIMPLE.class_name}, [State.INFLIGHT]),
    ],
)
def test_a_clustering_refuses_updates_unless_the_jobs_options_say_otherwise(options, expected):
    assert refusing_states(options) == set(expected)


def test_a_foreign_write_of_the_scope_is_waited_for_without_the_lease(
    start, folder, queue, store, capsys
):
    write(folder, T1)
    task, context = start()
    resume, trigger = waits(task, task.execute, context)
    assert (trigger.instants, trigger.until) == ([T1], ["dead", "committed", "rolled_back", "gone"])
    assert trigger.deadline_ms == store["hudi_write"]["preflight"]["since_ms"] + 3_600_000
    assert not Queue(queue).requests()  # others go on meanwhile
    assert store["hudi_write"]["waiting"]["reason"] == (
        f"waiting for {T1} (UPSERT of p=1 by a running writer), to which the job would lose"
    )
    assert f" UTC at most: waiting for {T1} (UPSERT of p=1" in capsys.readouterr().out
    waits(task, resume, context, REACHED)  # it beat once more after the event
    assert not Queue(queue).requests()
    end(folder, T1)
    resume(context, REACHED)
    assert task.ran == 1
    kept = store["hudi_write"]
    assert (kept["preflight"]["instants"], kept["waiting"], kept["place"]) == ([], None, None)


def test_a_driver_starts_beside_writes_of_other_partitions_dead_ones_and_its_own(start, folder):
    write(folder, T0, "p=2")
    write(folder, T1)
    beat(folder, T1, 600)
    write(folder, T2)
    task, context = start()
    run = open_journal(context)
    own = AttemptRecord(1, 14, run.record.identity, task.table, 0, instants=(T2,), settled=True)
    run.keep(own)
    task.execute(context)
    assert task.ran == 1


def test_a_stream_is_waited_for_only_until_its_first_write_has_ended(start, folder):
    write(folder, T1)
    task, context = start()
    resume, _ = waits(task, task.execute, context)
    end(folder, T1)
    write(folder, T2)
    resume(context, REACHED)
    assert task.ran == 1


def test_each_try_looks_anew(start, folder, store):
    write(folder, T1)
    task, context = start()
    waits(task, task.execute, context)
    end(folder, T1)
    write(folder, T2)
    task, context = start(2)
    resume, trigger = waits(task, task.execute, context)
    assert trigger.instants == [T2]
    assert store["hudi_write"]["preflight"]["try_number"] == 2
    end(folder, T2)
    resume(context, REACHED)
    assert task.ran == 1


def test_what_a_try_that_died_waited_for_is_shown_no_longer(start, folder, store):
    write(folder, T1)
    task, context = start()
    waits(task, task.execute, context)
    end(folder, T1)
    task, context = start(2)
    task.execute(context)
    assert (task.ran, store["hudi_write"]["waiting"]) == (1, None)


def test_the_job_starts_all_the_same_after_the_time_out(start, folder, store, monkeypatch, capsys):
    write(folder, T1)
    task, context = start(preflight_timeout=timedelta(minutes=5))
    resume, trigger = waits(task, task.execute, context)
    later = trigger.deadline_ms + 1
    monkeypatch.setattr(rivals, "now_ms", lambda: later)
    resume(context, {"status": "timeout"})
    assert task.ran == 1
    assert (
        f"timed out after 0:05:00: still pending is {T1}. The job starts, and Hudi's"
        in capsys.readouterr().out
    )
    assert store["hudi_write"]["preflight"]["instants"] == []


def test_an_unreadable_table_does_not_keep_the_job_from_its_start(start, folder, monkeypatch, capsys):
    def away(_):
        raise TableUnreadableError("the storage is away")

    write(folder, T1)
    monkeypatch.setattr(Snapshot, "heartbeats", away)
    task, context = start()
    task.execute(context)
    assert task.ran == 1
    assert "The job starts without preflight: the storage is away" in capsys.readouterr().out


@pytest.mark.parametrize("by", ["worker", "triggerer"])
def test_a_table_that_becomes_unreadable_during_the_wait_ends_it(start, folder, monkeypatch, capsys, by):
    write(folder, T1)
    task, context = start()
    resume, _ = waits(task, task.execute, context)
    if by == "worker":

        def away(*_):
            raise TableUnreadableError("the storage is away")

        monkeypatch.setattr(rivals, "still_pending", away)
        resume(context, REACHED)
    else:
        resume(context, {"status": "error", "message": "the storage is away"})
    assert task.ran == 1
    assert "The job starts without preflight: the storage is away" in capsys.readouterr().out


def test_a_clustering_of_the_scope_is_waited_for_and_the_task_that_planned_it_named(
    start, folder, store
):
    cluster(folder, T1, extra=SIGNATURE.options())
    cluster(folder, T2)
    task, context = start()
    task.options = {**task.options, OPERATION: "upsert"}
    resume, trigger = waits(task, task.execute, context)
    assert trigger.instants == [T1, T2]
    assert store["hudi_write"]["waiting"]["reason"] == (
        f"waiting for {T1} (CLUSTER of p=1 planned by dag / task) and "
        f"{T2} (CLUSTER of p=1 by an unsigned plan), to which the job would lose"
    )
    (folder / "timeline" / f"{T1}_{C}.replacecommit").write_text('{"operationType": "CLUSTER"}')
    (folder / "timeline" / f"{T2}.clustering.requested").unlink()
    resume(context, REACHED)
    assert task.ran == 1


@pytest.mark.parametrize("timeout", [None, "soon"])
def test_a_timeout_that_is_no_length_of_time_is_refused(start, timeout):
    with pytest.raises(ConfigurationError, match=r"preflight_timeout.*is no length of time"):
        start(preflight_timeout=timeout)


def test_a_writer_that_prefers_writers_does_not_wait_for_a_clustering(start, folder):
    cluster(folder, T1)
    task, context = start()
    task.options = {**task.options, STRATEGY_OPTION: Strategy.PREFER_WRITER.class_name}
    task.execute(context)
    assert task.ran == 1


def test_without_a_scope_the_partitions_are_those_of_the_attempt_that_lost(start, folder):
    write(folder, T1)
    task, context = start(scope=None)
    task.execute(context)
    assert task.ran == 1
    context["task_state_store"].clear()
    open_journal(context).escalate(("p=1",))
    task, context = start(2, scope=None)
    waits(task, task.execute, context)


def test_a_task_outside_the_queue_waits_too(start, folder):
    write(folder, T1)
    task, context = start(admission="off")
    resume, _ = waits(task, task.execute, context)
    end(folder, T1)
    resume(context, REACHED)
    assert task.ran == 1


def test_a_holder_of_the_same_scope_is_left_to_the_queue(start, folder, queue):
    line, path = Queue(queue), str(folder.parent)
    scopes = (Scope.of(path, SCOPE),)
    theirs = line.request(Request("theirs", Owner(("d", "r", "writer")), scopes, 60_000))
    write(folder, T1)
    task, context = start()
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    assert isinstance(deferred.value.trigger, HudiAdmissionTrigger)  # it keeps its place
    end(folder, T1)
    line.release(theirs)
    getattr(task, deferred.value.method_name)(context, {"status": "granted"})
    assert task.ran == 1


def test_a_driver_that_an_operator_starts_is_not_started_before(folder, queue, store, tmp_path):
    LivyOperator.drivers = []
    write(folder, T1)
    task, context = starter(folder, store, tmp_path)(scope=SCOPE)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    assert isinstance(deferred.value.trigger, HudiHeartbeatTrigger)
    assert LivyOperator.drivers == []
    end(folder, T1)
    resume = getattr(task, deferred.value.method_name)
    with pytest.raises(TaskDeferred) as deferred:
        resume(context, REACHED)
    assert isinstance(deferred.value.trigger, HudiDriverTrigger)
    assert len(LivyOperator.drivers) == 1


def test_switched_off_it_asks_the_storage_nothing(start, folder):
    write(folder, T1)
    task, context = start(preflight_timeout=timedelta(0))
    task.execute(context)
    assert task.ran == 1
    no_table = Preflight(open_journal(context), None, task.table, RULE, timedelta(0), task.log)
    no_table.go_on()
    no_table.begin(Claim(task.table, tuple(SCOPE)), {}, None)


def test_a_record_with_a_preflight_comes_back_from_json():
    record = TaskRecord("i", preflight=PreflightRecord(2, 7, (T1, T2)))
    assert TaskRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    earlier = record.to_json()
    del earlier["preflight"]  # of an earlier release
    assert TaskRecord.from_json(earlier) == TaskRecord("i")
