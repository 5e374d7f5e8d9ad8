"""The job's own ``retries`` and the budgets on top, in each way in which a task is made."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG, ExceptionRetryPolicy, RetryAction, RetryRule, task
from airflow.serialization.serialized_objects import DagSerialization

from airflow_occ_provider.errors import JobError, WriteConflictError
from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator
from airflow_occ_provider.operators.hudi_streamer import HudiStreamerOperator
from airflow_occ_provider.operators.hudi_table_service import (
    HudiClusteringOperator,
    HudiCompactionOperator,
)
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import (
    HudiKeepLeaseOperator,
    HudiLeaseOperator,
    HudiReleaseLeaseOperator,
)
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.retry import DEFAULT_BUDGETS

BUDGETS = sum(DEFAULT_BUDGETS.values())
SITE = ExceptionRetryPolicy([RetryRule(PermissionError, RetryAction.FAIL)])
FEWER = HudiConflictRetryPolicy(budgets={"conflict": 1})
JOB_ERROR = JobError("x", outcome="job_error")
CONFLICT = WriteConflictError("x", outcome="commit_conflict")


def classic(operator, mapped_over, **fixed):
    """Return the three ways to make a task of an operator; each takes further arguments."""
    name, values = mapped_over

    def partial(**given):
        return operator.partial(task_id="t", **fixed, **given)

    return {
        "plain": lambda **given: operator(task_id="t", **{name: values[0]}, **fixed, **given),
        "expand": lambda **given: partial(**given).expand(**{name: values}),
        "expand_kwargs": lambda **given: partial(**given).expand_kwargs([{name: v} for v in values]),
    }


def decorated(**given):
    @task.hudi_write(table="/t", task_id="t", **given)
    def write(spark, city):
        return None

    return write


@task.hudi_write(table="/t", task_id="t")
def without_arguments(spark, city):
    return None


TABLES, TICKETS = ("table", ["/a", "/b"]), ("ticket", [{"name": "n"}, {"name": "m"}])
WAYS = {
    "write": classic(HudiWriteOperator, TABLES, application="job.py"),
    "streamer": classic(HudiStreamerOperator, TABLES),
    "clean": classic(HudiCleanOperator, TABLES),
    "clustering": classic(HudiClusteringOperator, TABLES),
    "compaction": classic(HudiCompactionOperator, TABLES),
    "lease": {"plain": lambda **given: HudiLeaseOperator(task_id="t", tables=["/a"], **given)},
    "keep": classic(HudiKeepLeaseOperator, TICKETS),
    "release": classic(HudiReleaseLeaseOperator, TICKETS),
    "decorator": {
        "plain": lambda **given: decorated(**given)("rome"),
        "expand": lambda **given: decorated(**given).expand(city=["rome"]),
        "expand_kwargs": lambda **given: decorated(**given).expand_kwargs([{"city": "rome"}]),
        "partial": lambda **given: decorated(**given).partial(city="rome").expand_kwargs([{}]),
        "override": lambda **given: without_arguments.override(**given)("rome"),
        "override, expand": lambda **given: without_arguments.override(**given).expand(city=["rome"]),
    },
}
PAIRS = [(kind, way) for kind, ways in WAYS.items() for way in ways]
GIVEN = [
    # the DAG's default_args, the task's arguments, its own retries, all retries, the other policy
    ({}, {}, 0, BUDGETS, None),
    ({}, {"retries": 2}, 2, 2 + BUDGETS, None),
    ({}, {"retries": BUDGETS}, BUDGETS, 2 * BUDGETS, None),
    ({"retries": 2}, {}, 2, 2 + BUDGETS, None),
    ({"retries": 2}, {"retries": 0}, 0, BUDGETS, None),
    ({}, {"default_args": {"retries": 3}}, 3, 3 + BUDGETS, None),
    ({"retry_policy": SITE}, {}, 0, BUDGETS, SITE),
    ({"retry_policy": SITE, "retries": 2}, {}, 2, 2 + BUDGETS, SITE),
    ({}, {"retry_policy": SITE, "retries": 1}, 1, 1 + BUDGETS, SITE),
    ({"retry_policy": SITE}, {"retry_policy": FEWER}, 0, BUDGETS - 4, None),
    ({"retry_policy": SITE}, {"retry_policy": FEWER.with_otherwise(SITE)}, 0, BUDGETS - 4, SITE),
    ({}, {"retry_policy": None}, 0, BUDGETS, None),
]


def made(kind, way, default_args, given):
    """Return the task of a DAG, and the same task as the scheduler reads it."""
    with DAG("d", schedule=None, default_args=default_args) as dag:
        WAYS[kind][way](**given)
    read = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    return dag.get_task("t"), read.get_task("t")


def on_worker(made_task):
    """Return the task as a worker runs it: that of a mapped task's first index."""
    if not made_task.is_mapped:
        return made_task
    values, _ = made_task._expand_mapped_kwargs({})
    return made_task.unmap(values)


@pytest.fixture(autouse=True)
def first_index(monkeypatch):
    monkeypatch.setattr(
        "airflow.sdk.definitions._internal.expandinput.DictOfListsExpandInput.resolve",
        lambda self, _: ({key: values[0] for key, values in self.value.items()}, set()),
    )
    monkeypatch.setattr(
        "airflow.sdk.definitions._internal.expandinput.ListOfDictsExpandInput.resolve",
        lambda self, _: (self.value[0], set()),
    )


@pytest.mark.parametrize(("kind", "way"), PAIRS)
@pytest.mark.parametrize(("default_args", "given", "own", "in_all", "otherwise"), GIVEN)
def test_retries_are_the_jobs_own_and_the_budgets_come_on_top(
    kind, way, default_args, given, own, in_all, otherwise
):
    task, read = made(kind, way, default_args, given)
    assert (read.retries, read.has_retry_policy) == (in_all, True)
    runs = on_worker(task)
    assert (runs.own_retries, runs.retries, runs.retry_policy.otherwise) == (own, in_all, otherwise)


def granted(task, error):
    """Return how often a task's policy retries an error, and the last decision."""
    store = {}
    state = SimpleNamespace(get=store.get, set=store.__setitem__)
    context = {"task": task, "task_state_store": state, "ti": SimpleNamespace(map_index=-1)}
    decisions = []
    while len(decisions) < 99:
        number = len(decisions) + 1
        decision = task.retry_policy.evaluate(error, number, task.retries, context)
        if decision.action is RetryAction.FAIL:
            break
        decisions.append(decision)
    return len(decisions), decision


@pytest.mark.parametrize(("kind", "way"), PAIRS)
def test_each_kind_of_error_has_its_own_count(kind, way):
    runs = on_worker(made(kind, way, {"retries": 2, "retry_policy": SITE}, {})[0])
    assert granted(runs, CONFLICT)[0] == DEFAULT_BUDGETS["conflict"]
    assert granted(runs, JOB_ERROR)[0] == 2
    assert granted(runs, ValueError("x"))[0] == DEFAULT_BUDGETS["airflow"]
    count, decision = granted(runs, PermissionError("x"))
    assert (count, decision.reason) == (0, "Matched rule for PermissionError")


def test_another_policy_sees_the_jobs_own_retries_and_delays_within_them():
    asked = []

    class Doubling(ExceptionRetryPolicy):
        def evaluate(self, exception, try_number, max_tries, context=None):
            asked.append((try_number, max_tries))
            return super().evaluate(exception, try_number, max_tries, context)

    other = Doubling([RetryRule(JobError, RetryAction.RETRY, retry_delay=timedelta(seconds=9))])
    runs = on_worker(made("write", "plain", {}, {"retries": 2, "retry_policy": other})[0])
    assert granted(runs, JOB_ERROR)[0] == 2
    assert asked == [(1, 2), (2, 2)]
    assert runs.retry_policy.evaluate(CONFLICT, 1, runs.retries).retry_delay != timedelta(seconds=9)
    assert len(asked) == 2


@pytest.mark.parametrize(("kind", "way"), PAIRS)
def test_a_cluster_policy_adds_its_own_and_does_not_replace_the_budgets(kind, way):
    task, _ = made(kind, way, {}, {"retries": 1})
    task.retry_policy = SITE
    runs = on_worker(task)
    assert runs.retry_policy.otherwise is SITE
    assert (runs.own_retries, runs.retries) == (1, 1 + BUDGETS)
    assert granted(runs, CONFLICT)[0] == DEFAULT_BUDGETS["conflict"]


@pytest.mark.parametrize(
    ("max_tries", "is_told"), [(BUDGETS + 2, False), (BUDGETS + 1, True), (0, True)]
)
def test_the_task_instances_own_limit_is_compared(caplog, max_tries, is_told):
    runs = on_worker(made("write", "plain", {}, {"retries": 2})[0])
    with caplog.at_level(logging.WARNING):
        runs.retry_policy.warn_of_few(max_tries, runs.own_retries, logging.getLogger())
    assert [f"retries this task {max_tries} times" in text for text in caplog.messages] == [
        True
    ] * is_told
