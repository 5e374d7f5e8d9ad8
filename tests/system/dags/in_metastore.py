"""Writers and leases whose lock is in a Hive metastore."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator

PARAMS = {name: Param("", type="string") for name in ("job", "table", "other", "gate")}
LOCK = "hudi_lock_metastore"
TABLE, OTHER = "{{ params.table }}", "{{ params.other }}"
COMMON: dict[str, Any] = {
    "application": "{{ params.job }}",
    "table": TABLE,
    "lock_conn_id": LOCK,
    "driver_memory": "1g",
    "hudi_options": {"hoodie.metadata.enable": "false"},  # a quarter of what a driver costs
}
GATE = ("--gate", "{{ params.gate }}")

with DAG("in_metastore", schedule=None, params=PARAMS):
    lease = HudiLeaseOperator(task_id="lease", tables=[TABLE, OTHER], lock_conn_id=LOCK)
    with lease.held():
        HudiWriteOperator(task_id="write", application_args=[TABLE, "--partition", "1", *GATE], **COMMON)

with DAG("rival_in_metastore", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write", application_args=[TABLE, "--partition", "1"], scope=["1"], **COMMON
    )

with DAG("two_tables", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write", application_args=[TABLE, "--also", OTHER], scope=["0", "1"], **COMMON
    )
