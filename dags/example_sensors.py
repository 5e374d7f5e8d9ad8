"""Wait, without a worker slot, for a scope to be free, and for the end of another task's write."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.sensors.heartbeat import HudiHeartbeatSensor
from airflow_occ_provider.sensors.lease import HudiLeaseSensor

JOB = str(Path(__file__).parent / "jobs" / "write_city.py")

with DAG(
    "example_sensors",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    params={"table": Param("/tmp/airflow_occ/cities", type="string")},
    default_args={"table": "{{ params.table }}"},
) as dag:
    free = HudiLeaseSensor(task_id="free", scope=["berlin"], poke_interval=10, deferrable=True)
    write = HudiWriteOperator(
        task_id="write",
        application=JOB,
        application_args=["--table", "{{ params.table }}", "--city", "berlin"],
        scope=["berlin"],
        driver_memory="1g",
    )
    # Beside the write, not after it: it ends once the table shows the commit, or the writer's death.
    committed = HudiHeartbeatSensor(
        task_id="committed", writer_task_id="write", until=["committed", "dead"], deferrable=True
    )
    free >> [write, committed]
