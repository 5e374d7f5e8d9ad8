"""What is known of leases when a DAG is parsed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG, TaskGroup, task_group
from airflow.sdk.bases.operator import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from airflow_occ_provider.attempts.scope import Isolation
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators import lease as lease_module
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator
from tests.support.memory_store import MemoryStore


def test_what_only_the_queue_keeps_apart_cannot_leave_it():
    given = {"task_id": "t", "application": "a.py", "table": "/t", "isolation": "serializable"}
    with pytest.raises(ConfigurationError, match="admission: off, and isolation='serializable'"):
        HudiWriteOperator(**given, policy={"admission": "off"})
    assert HudiWriteOperator(**given).isolation is Isolation.SERIALIZABLE


def test_clearing_the_work_clears_the_lease_its_keeper_and_its_release():
    with DAG("d", schedule=None) as dag:
        lease = HudiLeaseOperator(task_id="lease", tables=["/t"])
        with lease.held():
            BaseOperator(task_id="work")
        BaseOperator(task_id="apart")
    cleared = dag.partial_subset("work", include_upstream=False, include_downstream=False)
    assert set(cleared.task_ids) == {"lease", "lease_keep", "work", "lease_release"}


def test_the_work_and_the_keeper_decide_on_the_run_not_the_release():
    with DAG("d", schedule=None) as dag, HudiLeaseOperator(task_id="lease", tables=["/t"]).held():
        BaseOperator(task_id="work")
    release, keeper = dag.get_task("lease_release"), dag.get_task("lease_keep")
    assert (release.is_teardown, release.on_failure_fail_dagrun) == (True, False)
    assert (keeper.is_teardown, keeper.on_failure_fail_dagrun) == (True, True)
    assert dag.get_task("work").downstream_task_ids == {"lease_release"}


@pytest.fixture
def keeper(monkeypatch):
    monkeypatch.setattr(lease_module, "_RELEASE_TIMEOUT_S", 0.0)
    with DAG("d", schedule=None) as dag, HudiLeaseOperator(task_id="lease", tables=["/t"]).held():
        BaseOperator(task_id="work")
    keeper = dag.get_task("lease_keep")
    keeper.ticket = {"name": "n2"}
    return keeper


def context(release):
    """That of a try of a run whose release is in a state."""

    def states(dag_id, task_ids, run_ids, map_index):
        assert (dag_id, task_ids, run_ids, map_index) == ("d", ["lease_release"], ["r"], None)
        return {"r": {"lease_release": release}} if release else {}

    return {"ti": SimpleNamespace(dag_id="d", run_id="r", map_index=-1, get_task_states=states)}


def test_in_a_task_group_the_prefix_stands_once():
    with DAG("d", schedule=None) as dag:
        with TaskGroup("outer"), TaskGroup("inner"):
            within = HudiLeaseOperator(task_id="lease", tables=["/t"])
            within.held()
        with TaskGroup("bare", prefix_group_id=False):
            HudiLeaseOperator(task_id="other", tables=["/t"]).held()
        with TaskGroup("early"):
            before = HudiLeaseOperator(task_id="lease", tables=["/t"])
        before.held()  # its tasks belong to the lease's group all the same
    assert set(dag.task_ids) == {
        *(f"outer.inner.{name}" for name in ("lease", "lease_keep", "lease_release")),
        *("other", "other_keep", "other_release"),
        *(f"early.{name}" for name in ("lease", "lease_keep", "lease_release")),
    }
    assert dag.get_task("outer.inner.lease_keep")._release_task_ids == ["outer.inner.lease_release"]


def test_a_lease_cannot_be_mapped():
    with DAG("d", schedule=None), pytest.raises(ConfigurationError, match="a DAG run holds one lease"):
        HudiLeaseOperator.partial(task_id="lease").expand(tables=[["/a"], ["/b"]])


def test_in_a_mapped_group_only_the_release_of_the_same_index_counts(monkeypatch):
    monkeypatch.setattr(lease_module, "_RELEASE_TIMEOUT_S", 0.0)
    with DAG("d", schedule=None) as dag:

        @task_group
        def city(name):
            with HudiLeaseOperator(task_id="lease", tables=["/t"], scope=name).held():
                BaseOperator(task_id="work")

        city.expand(name=["a", "b"])
    keeper = dag.get_task("city.lease_keep")
    keeper.ticket = {"name": "n2"}

    def states(dag_id, task_ids, run_ids, map_index):
        of_index = {0: "failed", 1: "success"}
        wanted = of_index if map_index is None else [map_index]
        return {"r": {f"{task_ids[0]}_{index}": of_index[index] for index in wanted}}

    event = {"status": "released", "message": "it was removed", "name": "n2"}
    ti = SimpleNamespace(dag_id="d", run_id="r", map_index=0, get_task_states=states)
    with pytest.raises(AirflowFailException, match="it was removed"):
        keeper.execute_complete({"ti": ti}, event)
    ti.map_index = 1
    keeper.execute_complete({"ti": ti}, event)


@pytest.mark.parametrize(
    ("status", "release", "is_well"),
    [
        ("released", "success", True),
        ("released", None, False),
        ("released", "scheduled", False),
        ("released", "failed", False),
        ("lost", "success", False),
    ],
)
def test_a_keeper_ends_well_only_where_the_release_ended_the_lease(keeper, status, release, is_well):
    event = {"status": status, "message": "it was removed", "name": "n2"}
    if is_well:
        keeper.execute_complete(context(release), event)
    else:
        with pytest.raises(AirflowFailException, match=r"it was removed\. Remedy: "):
            keeper.execute_complete(context(release), event)


def test_a_keeper_continues_after_an_event_of_an_earlier_lease(keeper, monkeypatch):
    connection = {"conn_type": "hudi_zookeeper_lock", "host": "127.0.0.1:1"}
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", json.dumps(connection))
    event = {"status": "released", "message": "it was removed", "name": "n1"}
    with pytest.raises(TaskDeferred) as deferred:
        keeper.execute_complete(context(None), event)
    assert deferred.value.trigger.ticket == {"name": "n2"}


def test_a_keeper_that_was_refused_says_why_and_is_tried_again(keeper):
    event = {"status": "error", "message": "lock connection: wrong. Remedy: correct it"}
    with pytest.raises(LockUnreachableError, match=r"^lock connection: wrong\. Remedy: correct it$"):
        keeper.execute_complete(context("running"), event)


def test_a_keeper_that_looks_goes_on_until_the_release_is_over(keeper, monkeypatch):
    connection = {"conn_type": "hudi_zookeeper_lock", "host": "127.0.0.1:1"}
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", json.dumps(connection))
    for state in (None, "scheduled", "running", "up_for_retry"):
        with pytest.raises(TaskDeferred):
            keeper.execute_complete(context(state), {"status": "check", "name": "n2"})


def test_a_lease_that_the_release_has_left_is_released_by_the_keeper(keeper, monkeypatch):
    line = Queue(MemoryStore())
    request = Request("i", Owner(("d", "r"), "lease"), (Scope.of("/t", None),), 60_000)
    keeper.ticket = line.request(request).to_json()
    hook = SimpleNamespace(leases=lambda: line)
    monkeypatch.setattr(lease_module, "lock_hook", lambda conn_id: hook)
    with pytest.raises(AirflowFailException, match="ended without releasing the lease: it is now"):
        keeper.execute_complete(context("failed"), {"status": "check", "name": keeper.ticket["name"]})
    assert line.requests() == ()


def test_a_release_that_ended_before_the_keeper_looked_is_no_loss(keeper, monkeypatch):
    line = Queue(MemoryStore())
    request = Request("i", Owner(("d", "r"), "lease"), (Scope.of("/t", None),), 60_000)
    ticket = line.request(request)
    line.release(ticket)
    keeper.ticket = ticket.to_json()
    monkeypatch.setattr(lease_module, "lock_hook", lambda conn_id: SimpleNamespace(leases=lambda: line))
    event = {"status": "check", "name": keeper.ticket["name"]}
    keeper.execute_complete(context("success"), event)
    with pytest.raises(AirflowFailException, match="ended without releasing the lease"):
        keeper.execute_complete(context("failed"), event)
