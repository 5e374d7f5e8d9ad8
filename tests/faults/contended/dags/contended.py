"""Tasks that all update one row; only early stop ends one before its commit."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

PARAMS = {name: Param("", type="string") for name in ("job", "table", "seconds")}
WRITERS = ("a", "b", "c")

with DAG("contended", schedule=None, params=PARAMS, max_active_runs=8) as dag:
    for name in WRITERS:
        HudiWriteOperator(
            task_id=f"write_{name}",
            application="{{ params.job }}",
            application_args=["{{ params.table }}", name, "{{ params.seconds }}"],
            table="{{ params.table }}",
            policy={"early_conflict_detection": False},
            driver_memory="1g",
            env_vars={"WRITES": "{{ params.table }}"},
            hudi_options={
                "hoodie.client.heartbeat.interval_in_ms": 2000,
                "hoodie.client.heartbeat.tolerable.misses": 5,
            },
            retry_delay=timedelta(seconds=1),
            retry_policy=HudiConflictRetryPolicy(base_delay=timedelta(seconds=1)),
        )
