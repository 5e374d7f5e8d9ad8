"""Writers of different partitions, one mapped task each: they run side by side and never conflict."""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import DAG, Asset, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

JOB = str(Path(__file__).parent / "jobs" / "write_city.py")
CITIES = ("amsterdam", "berlin")

with DAG(
    "example_write",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example"],
    params={"table": Param("/tmp/airflow_occ/cities", type="string")},
    default_args={
        "application": JOB,
        "table": "{{ params.table }}",
        "driver_memory": "1g",
        # Writers that run side by side may run one clean at once: a task cleans for all (example_clean).
        "hudi_options": {"hoodie.clean.automatic": "false"},
    },
) as dag:
    # The first write creates the table, so it takes all of it.
    create = HudiWriteOperator(
        task_id="create", application_args=["--table", "{{ params.table }}", "--city", "zurich"]
    )
    write = HudiWriteOperator.partial(task_id="write", outlets=[Asset("trips_by_city")]).expand_kwargs(
        [
            {"scope": [city], "application_args": ["--table", "{{ params.table }}", "--city", city]}
            for city in CITIES
        ]
    )
    create >> write
