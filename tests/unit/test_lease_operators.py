"""What is known of leases when a DAG is parsed."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG
from airflow.sdk.bases.operator import BaseOperator

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator


@pytest.mark.parametrize("promise", ["key_safe", "reads_table"])
def test_what_only_the_queue_keeps_apart_cannot_leave_it(promise):
    given = {"task_id": "t", "application": "a.py", "table": "/t", promise: True}
    with pytest.raises(ConfigurationError, match="admission: off, and key_safe or reads_table"):
        HudiWriteOperator(**given, admission="off")
    assert getattr(HudiWriteOperator(**given), promise)


def test_whoever_clears_the_work_clears_the_lease_its_keeper_and_its_release():
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
