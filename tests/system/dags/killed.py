"""One gated write, for drivers and tasks that are killed."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate")}

with DAG("killed", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write",
        application="{{ params.job }}",
        application_args=["{{ params.table }}", "--gate", "{{ params.gate }}"],
        table="{{ params.table }}",
        driver_memory="1g",
        env_vars={"WRITES": "{{ params.table }}"},
        hudi_options={"hoodie.metadata.enable": "false"},  # a quarter of what a driver costs
        retry_policy=HudiConflictRetryPolicy(base_delay=timedelta(seconds=1)),
    )
