"""Two writers of one table, an asset event, and a reader that copies each row once."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import DAG

from airflow_occ_provider.assets.table import hudi_asset
from airflow_occ_provider.operators.hudi_incremental_read import HudiIncrementalReadOperator
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

JOBS = Path(__file__).parent / "jobs"
LAKE = os.environ.get("EXAMPLE_LAKE", "/tmp/airflow_occ")
TABLE, COPY = f"{LAKE}/chain", f"{LAKE}/chain_copy"
SPARK = {"table": TABLE, "driver_memory": "1g"}

trips = hudi_asset(TABLE)

with DAG("example_chain", schedule=None, tags=["hudi", "example"], default_args=SPARK) as chain:
    create, *writers = [
        HudiWriteOperator(
            task_id=f"write_{city}",
            application=str(JOBS / "write_city.py"),
            application_args=["--table", TABLE, "--city", city],
            outlets=[trips],
        )
        for city in ("zurich", "amsterdam", "berlin")
    ]
    create >> writers

with DAG(
    "example_chain_reader",
    description=__doc__,
    schedule=[trips],
    tags=["hudi", "example"],
    max_active_runs=1,  # of a consumer, one run at a time reads
    default_args=SPARK,
):
    HudiIncrementalReadOperator(
        task_id="read",
        application=str(JOBS / "new_trips.py"),
        application_args=["--target", COPY],
        consumer="example_chain",
    )
