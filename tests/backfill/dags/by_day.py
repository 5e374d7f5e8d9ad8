"""Writers whose runs have a day for their partition key, and one of all days."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, CronPartitionTimetable, PartitionedAtRuntime

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

TABLE = os.environ["BACKFILL_TABLE"]
COMMON: dict[str, Any] = {
    "task_id": "write",
    "application": str(Path(__file__).parents[2] / "jobs" / "daily_write.py"),
    "table": TABLE,
    "driver_memory": "1g",
    "retries": 3,
    # The rig reads which files are the table's from its active timeline alone. Two cleans of writers
    # that complete at the same time may meet, and fail one of them after its commit.
    "hudi_options": {
        "hoodie.metadata.enable": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.clean.automatic": "false",
    },
}
OF_THE_KEY = [TABLE, "{{ partition_key }}", "--run", "{{ run_id }}"]

with DAG("all_days", schedule=None):
    days = os.environ["BACKFILL_DAYS"].split(",")
    HudiWriteOperator(application_args=[TABLE, *days, "--run", "{{ run_id }}"], **COMMON)

with DAG("daily", schedule=CronPartitionTimetable("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d")):
    HudiWriteOperator(application_args=OF_THE_KEY, **COMMON)

with DAG("hourly", schedule=PartitionedAtRuntime()):
    HudiWriteOperator(application_args=OF_THE_KEY, **COMMON)
