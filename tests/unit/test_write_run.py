"""``HudiWriteOperator`` from try to try, on tables made by hand and a queue in memory, without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from airflow.sdk.exceptions import TaskDeferred

from airflow_occ_provider.attempts import write
from airflow_occ_provider.attempts.admitted import Admitted
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.preparation import Preparation
from airflow_occ_provider.attempts.record import AttemptRecord
from airflow_occ_provider.attempts.record_parts import NOTHING_BEFORE
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
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.submitters.processes import DriverProcess
from airflow_occ_provider.task.run import open_journal
from tests.local_drivers import handle_of
from tests.policies import with_policy
from tests.unit.test_claim import IN_PROCESS
from tests.unit.test_fence import LATE, ROLLBACK, roll_back
from tests.unit.test_record import Store, Task
from tests.unit.test_table import T1, T2, C, add, begin

HERE = handle_of(replace(DriverProcess.of(1), pid=2**22 + 1, started=0))  # no process has that id
FAR = handle_of(DriverProcess(42, 0, "far", "b", "n"))
INTERVAL = {"hoodie.client.heartbeat.interval_in_ms": "60000"}


def whole(folder):
    return Scope.of(str(folder.parent), None)


@dataclass(frozen=True)
class AttemptOf(write.Write):
    """A write whose attempt is that of an operator of a test."""

    attempt_of: Callable = None

    def attempt(self, preparation, admitted):
        return self.attempt_of(self.run, admitted)


class Write(HudiWriteOperator):
    """In the place of Spark: attempts that fail as told, or do nothing."""

    options = INTERVAL
    ran = 0
    cleaned: tuple[str, ...] = ()

    def _protected_run(self, context):
        run = super()._protected_run(context)
        run.look_up = lambda: None
        run.prepare = partial(self.prepare, run)
        run.known_options = lambda _: dict(self.options)
        run.run_clean = self.run_clean
        return run

    def prepare(self, run, order_token=""):
        self.hudi_defaults = dict(self.options)
        return Preparation(None, None, self.options, "", run.table.snapshot(missing_ok=True))

    def _write(self, context):
        write = super()._write(context)
        return AttemptOf(write.run, write.event, self._attempt)

    def _attempt(self, run, admitted):
        self.ran += 1

    def run_clean(self, preparation, table, admitted):
        """In the place of the lazy clean: what its rollback does to the files."""
        self.cleaned += (table,)
        for path in Path(self.table, ".hoodie", "timeline").glob(f"{T1}*"):
            path.unlink()
        roll_back(Path(self.table, ".hoodie"), T1, f"{ROLLBACK}_{LATE}.rollback")
        return 0, None


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
