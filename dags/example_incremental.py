"""Write a city, wait for its commit and until it can be read, and read what is new, each row once."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_incremental_read import HudiIncrementalReadOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.sensors.commit import HudiCommitSensor
from airflow_occ_provider.sensors.idle import HudiTableIdleSensor
from airflow_occ_provider.sensors.incremental_window import HudiIncrementalWindowSensor

JOBS = Path(__file__).parent / "jobs"

with DAG(
    "example_incremental",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    max_active_runs=1,  # of a consumer, one run at a time reads
    params={
        "table": Param("/tmp/airflow_occ/cities", type="string"),
        "city": Param("berlin", type="string"),
    },
    default_args={"table": "{{ params.table }}"},
) as dag:
    write = HudiWriteOperator(
        task_id="write",
        application=str(JOBS / "write_city.py"),
        application_args=["--table", "{{ params.table }}", "--city", "{{ params.city }}"],
        driver_memory="1g",
    )
    committed = HudiCommitSensor(
        task_id="committed",
        signed={"dag_id": "{{ dag.dag_id }}", "run_id": "{{ run_id }}"},
        deferrable=True,
    )
    idle = HudiTableIdleSensor(task_id="idle", scope=["{{ params.city }}"], deferrable=True)
    ready = HudiIncrementalWindowSensor(task_id="ready", consumer="example", deferrable=True)
    read = HudiIncrementalReadOperator(
        task_id="read",
        application=str(JOBS / "new_trips.py"),
        application_args=["--target", "{{ params.table }}_copy"],
        consumer="example",
        driver_memory="1g",
    )
    write >> idle
    [committed, idle] >> ready >> read
