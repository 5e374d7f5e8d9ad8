"""``HudiWriteOperator`` from try to try, on tables made by hand and a queue in memory, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts.driver import Admitted
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.record import NOTHING_BEFORE, AttemptRecord
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.errors import (
    AdmissionTimeoutError,
    TableUnreadableError,
    WorkerLostError,
    WriteConflictError,
)
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.submitters.processes import DriverProcess
from airflow_occ_provider.task.run import open_journal
from tests.support.hand_made_tables import T1, T2, C, add, begin
from tests.support.local_drivers import handle_of
from tests.support.policies import with_policy
from tests.support.task_state import Store, Task
from tests.support.write_runs import IN_PROCESS, INTERVAL, Write

HERE = handle_of(replace(DriverProcess.of(1), pid=2**22 + 1, started=0))  # no process has that id
FAR = handle_of(DriverProcess(42, 0, "far", "b", "n"))


def whole(folder):
    return Scope.of(str(folder.parent), None)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, store):
    """Makes one try: the operator and its context."""

    def start(number=1, kind=Write, **given):
        given = {
            "task_id": "t",
            "application": "job.py",
            "table": str(folder.parent),
            **with_policy(given),
        }
        context = {"ti": Task(number, 14), "task_state_store": store}
        return kind(**given), context

    return start


def dies(context, table, driver=HERE, **more):
    """Leave what a worker leaves that dies together with its driver."""
    run = open_journal(context)
    run.begin("d", NOTHING_BEFORE)
    identity = run.record.identity
    run.keep(AttemptRecord(run.now.number, run.now.max_tries, identity, table, 0, driver, **more))


def test_a_third_death_of_worker_and_driver_is_refused(start, folder):
    for number in (1, 2):
        dies(start(number)[1], str(folder.parent))
    write, context = start(3)
    write.execute(context)
    assert write.ran == 1
    context["task_state_store"]["hudi_write"]["succeeded"] = False
    dies(context, str(folder.parent))
    write, context = start(4)
    with pytest.raises(WorkerLostError, match=r"in tries 1, 2, 3: .*Remedy: look what ended") as refused:
        write.execute(context)
    assert write.ran == 0
    assert not refused.value.retry


def test_the_budget_for_deaths_is_the_policys(start, folder):
    dies(start(1)[1], str(folder.parent))
    write, context = start(2, retry_policy=HudiConflictRetryPolicy(budgets={"worker": 0}))
    with pytest.raises(WorkerLostError):
        write.execute(context)


@pytest.mark.parametrize("lock", [{}, IN_PROCESS], ids=["a real lock", "a lock of one process"])
def test_a_fence_holds_the_table_alone_where_the_lock_excludes_nobody(
    start, folder, queue, lock, monkeypatch
):
    spark = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    begin(folder, T1)
    (folder / ".heartbeat" / T1).unlink()
    dies(start(1)[1], str(folder.parent), driver=FAR, instants=(T1,))
    line = Queue(queue)
    theirs = line.request(Request("rival", Owner(("d", "r", "writer")), (whole(folder),), 60_000))
    write, context = start(2)
    write.options = {**INTERVAL, **lock}
    with pytest.raises(TaskDeferred) as deferred:
        write.execute(context)
    assert write.cleaned == (() if lock else (str(folder.parent),))
    line.release(theirs)
    getattr(write, deferred.value.method_name)(context, {"status": "granted"})
    assert write.cleaned == (str(folder.parent),)
    assert write.ran == 1
    assert not line.requests()


def test_the_rival_of_a_lost_attempt_is_waited_for_outside_the_queue(start, folder, queue, store):
    begin(folder, T2)
    write, context = start(1)
    lost = Settlement(Outcome.EARLY_CONFLICT)
    attempt = write._write(context).write_attempt()
    with pytest.raises(WriteConflictError):
        attempt.judge(lost, Admitted(), HeartbeatRule(60_000, 2))
    write, context = start(2)
    with pytest.raises(TaskDeferred) as deferred:
        write.execute(context)
    trigger = deferred.value.trigger
    assert (trigger.instants, trigger.until) == ([T2], ["dead", "committed", "rolled_back", "gone"])
    assert write.ran == 0
    assert not Queue(queue).requests()  # others go on meanwhile
    resume = getattr(write, deferred.value.method_name)
    with pytest.raises(TaskDeferred):
        resume(context, {"status": "reached"})  # it beat once more after the event
    begin(folder, T1)  # another one, that came later
    add(folder, f"{T2}_{C}.commit")
    resume(context, {"status": "reached"})
    assert write.ran == 1
    assert (store["hudi_write"]["rivals"], store["hudi_write"]["waiting"]) == ([], None)
    assert store["hudi_write"]["place"] is None  # released: no later process asks for it in vain


def test_a_table_that_the_triggerer_could_not_watch_is_tried_again(start):
    write, context = start(2)
    with pytest.raises(TableUnreadableError, match="API server is away") as raised:
        write.execute_after_rivals(context, {"status": "error", "message": "the API server is away"})
    assert raised.value.retry


def test_the_wait_for_a_rival_has_an_end(start, folder):
    begin(folder, T2)
    open_journal(start()[1]).escalate((), (T2,))
    write, context = start(2, wait_timeout=timedelta(0))
    with pytest.raises(AdmissionTimeoutError, match=rf"still waiting for {T2}.*Remedy: look with"):
        write.execute(context)
    assert write.ran == 0
