"""Two tasks upsert the same Hudi files: one loses, retries, and both commit."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Asset, Param

from airflow_occ_provider import WritePolicy
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

JOB = str(Path(__file__).parent / "jobs" / "upsert_trips.py")

with DAG(
    "two_writers",
    description=__doc__,
    schedule=None,
    tags=["hudi"],
    params={
        "table": Param("/tmp/airflow_occ/trips", type="string"),
        "latch": Param("/tmp/airflow_occ/latch", type="string"),
        "storage_conn_id": Param("", type="string"),
    },
    default_args={
        "application": JOB,
        "table": "{{ params.table }}",
        "storage_conn_id": "{{ params.storage_conn_id }}",
        "driver_memory": "1g",
        # Forces the most expensive conflict: Hudi's check at commit, which logs both instants. By
        # default the loser is stopped earlier.
        "policy": WritePolicy(early_conflict_detection="off", early_stop="off"),
        # A clean after a commit fails the job if the other writer ends while it reads its heartbeat.
        "hudi_options": {"hoodie.clean.automatic": "false"},
        "retry_policy": HudiConflictRetryPolicy(base_delay=timedelta(seconds=4)),
    },
) as dag:
    create = HudiWriteOperator(
        task_id="create", application_args=["--table", "{{ params.table }}", "--writer", "create"]
    )
    writers = [
        HudiWriteOperator(
            task_id=f"write_{name}",
            application_args=[
                *("--table", "{{ params.table }}", "--writer", name),
                *("--latch", "{{ params.latch }}", "--writers", "2"),
            ],
            outlets=[Asset(f"trips_{name}")],
        )
        for name in ("a", "b")
    ]
    create >> writers
