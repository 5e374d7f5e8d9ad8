"""Runs of a partition: by the key of a run, and by the event of what another task wrote."""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import DAG, Param, PartitionedAssetTimetable, PartitionedAtRuntime, task

from airflow_occ_provider.assets.table import hudi_asset
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

TABLE = f"{os.environ['EXAMPLE_LAKE']}/partitioned"
PARAMS = {"job": Param("", type="string")}
COMMON: dict[str, Any] = {
    "task_id": "write",
    "application": "{{ params.job }}",
    "table": TABLE,
    "lock_conn_id": "hudi_lock_quick",
    "driver_memory": "1g",
    "env_vars": {"WRITES": TABLE},
    "hudi_options": {"hoodie.metadata.enable": "false"},
}

with DAG("partitioned", schedule=PartitionedAtRuntime(), params=PARAMS):
    HudiWriteOperator(application_args=[TABLE, "--partition", "{{ partition_key }}"], **COMMON)

with DAG("by_partition", schedule=None, params=PARAMS):
    HudiWriteOperator(
        application_args=[TABLE, "--partition", "late"],
        outlets=[hudi_asset(TABLE, by_partition=True)],
        **COMMON,
    )


@task
def key_of_run(partition_key: str | None = None) -> str | None:
    """Show the key of the run."""
    return partition_key


with DAG("of_partition", schedule=PartitionedAssetTimetable(assets=hudi_asset(TABLE))):
    key_of_run()
