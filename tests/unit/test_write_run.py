"""``HudiWriteOperator`` from try to try, on tables made by hand and a queue in memory, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_occ_provider.errors import WorkerLostError
from airflow_occ_provider.hooks.hudi_lock import Terms
from airflow_occ_provider.jobs.driver_process import DriverProcess, ProcessTable
from airflow_occ_provider.jobs.record import Attempt
from airflow_occ_provider.leases.line import Line
from airflow_occ_provider.leases.memory import MemoryNodes
from airflow_occ_provider.operators import admitted
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.operators.task_run import TaskRun
from tests.unit.test_record import Instance, Store

HERE = DriverProcess(ProcessTable.here(), 2**22 + 1)  # no process has that id
INTERVAL = {"hoodie.client.heartbeat.interval_in_ms": "60000"}


class Task(Instance):
    """A task instance."""

    dag_id, run_id, task_id, map_index = "d", "r", "t", -1


class Write(HudiWriteOperator):
    """In the place of Spark: attempts that fail as told, or do nothing."""

    options = INTERVAL
    ran = 0

    def _prepare(self, context, run, order_token=""):
        self.hudi_defaults = dict(self.options)
        return SimpleNamespace(options=self.options)

    def _known_options(self, context, run):
        return dict(self.options)

    def _attempt(self, context, run, admitted):
        self.ran += 1


@pytest.fixture
def queue(monkeypatch):
    """The queue's nodes, as every connection tells of them."""
    nodes = MemoryNodes()
    terms = Terms(60_000, 600_000)
    hook = SimpleNamespace(
        lock_conn_id="lock", leases=lambda: Line(nodes), terms=lambda: terms, options=lambda _: {}
    )
    monkeypatch.setattr(admitted, "lock_hook", lambda _: hook)
    return nodes


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, store):
    """Makes one try: the operator and its context."""

    def start(number=1, kind=Write, **given):
        given = {"task_id": "t", "application": "job.py", "table": str(folder.parent), **given}
        context = {"ti": Task(number, 14), "task_state_store": store}
        return kind(**given), context

    return start


def dies(context, table, **more):
    """Leave what a worker leaves that dies together with its driver."""
    run = TaskRun(context)
    run.begin("d", "")
    identity = run.record.identity
    run.keep(Attempt(run.now.number, run.now.max_tries, identity, table, 0, HERE, **more))


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
