"""One partition is clustered, while writers of other partitions go on."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_table_service import HudiClusteringOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

JOB = str(Path(__file__).parent / "jobs" / "write_city.py")

with DAG(
    "example_clustering",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    params={"table": Param("/tmp/airflow_occ/cities", type="string")},
    default_args={"table": "{{ params.table }}", "driver_memory": "1g"},
) as dag:
    write = HudiWriteOperator(
        task_id="write",
        application=JOB,
        application_args=["--table", "{{ params.table }}", "--city", "berlin"],
        scope=["berlin"],
    )
    cluster = HudiClusteringOperator(
        task_id="cluster", scope=["berlin"], plan_timeout=timedelta(minutes=30)
    )
    write >> cluster
