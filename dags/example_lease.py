"""One lease around several tasks: no other writer changes either table in between."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.lease import HudiLeaseOperator

JOB = str(Path(__file__).parent / "jobs" / "write_city.py")
TABLES = {"cities": "{{ params.cities }}", "mirror": "{{ params.mirror }}"}

with DAG(
    "example_lease",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    params={
        "cities": Param("/tmp/airflow_occ/cities", type="string"),
        "mirror": Param("/tmp/airflow_occ/cities_mirror", type="string"),
    },
) as dag:
    lease = HudiLeaseOperator(task_id="lease", tables=list(TABLES.values()))
    with lease.held():
        for name, table in TABLES.items():
            HudiWriteOperator(
                task_id=f"write_{name}",
                application=JOB,
                application_args=["--table", table, "--city", "berlin"],
                table=table,
                driver_memory="1g",
            )
