"""What dead writers left is removed by Hudi's own lazy clean, once no writer is late or dead."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_clean import HudiCleanOperator

with DAG(
    "example_clean",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    params={"table": Param("/tmp/airflow_occ/cities", type="string")},
    default_args={"table": "{{ params.table }}", "driver_memory": "1g"},
) as dag:
    # Starts no Spark: its result says what is dead, and what a clean would leave.
    report = HudiCleanOperator(task_id="report", dry_run=True)
    clean = HudiCleanOperator(task_id="clean", wait_timeout=timedelta(minutes=10))
    report >> clean
