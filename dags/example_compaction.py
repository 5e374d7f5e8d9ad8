"""A merge-on-read table is written, then its log files are compacted."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_table_service import HudiCompactionOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

JOB = str(Path(__file__).parent / "jobs" / "write_city.py")
WRITE = ["--table", "{{ params.table }}", "--city", "berlin", "--type", "MERGE_ON_READ"]

with DAG(
    "example_compaction",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    params={"table": Param("/tmp/airflow_occ/merged_cities", type="string")},
    default_args={"table": "{{ params.table }}", "driver_memory": "1g"},
) as dag:
    create = HudiWriteOperator(task_id="create", application=JOB, application_args=WRITE)
    update = HudiWriteOperator(task_id="update", application=JOB, application_args=WRITE)
    compact = HudiCompactionOperator(
        task_id="compact",
        # By default Hudi plans a compaction after five commits.
        hudi_options={"hoodie.compact.inline.max.delta.commits": 1},
    )
    create >> update >> compact
