"""One write that can be held at every step.

``detached`` has a driver that outlives its parent, ``enduring`` one that does not end itself after a
pause either.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate", "storage_conn_id")}
BINARIES = {"faulty": "spark-submit", "detached": "spark2-submit", "enduring": "spark3-submit"}

for dag_id, binary in BINARIES.items():
    with DAG(dag_id, schedule=None, params=PARAMS, max_active_runs=8) as dag:
        HudiWriteOperator(
            task_id="write",
            application="{{ params.job }}",
            application_args=["{{ params.table }}", "--gate", "{{ params.gate }}"],
            table="{{ params.table }}",
            storage_conn_id="{{ params.storage_conn_id }}",
            spark_binary=binary,
            driver_memory="1g",
            env_vars={"WRITES": "{{ params.table }}"},
            hudi_options={
                "hoodie.client.heartbeat.interval_in_ms": 2000,
                "hoodie.client.heartbeat.tolerable.misses": 5,
            },
            retry_delay=timedelta(seconds=1 if binary == "spark-submit" else 8),
            retry_policy=HudiConflictRetryPolicy(base_delay=timedelta(seconds=1)),
        )
        globals()[dag_id] = dag
