"""Writers of one table: a first one, two that conflict, and one that waits for its turn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate")}
DAY = "2026-11-25"
COMMON: dict[str, Any] = {
    "application": "{{ params.job }}",
    "table": "{{ params.table }}",
    "driver_memory": "1g",
    "env_vars": {"WRITES": "{{ params.table }}"},
    # A conflict stays to be seen until Hudi's check at the commit.
    "policy": {"early_conflict_detection": False, "early_stop": "observe"},
    "retry_policy": HudiConflictRetryPolicy(base_delay=timedelta(minutes=2)),
    "hudi_options": {
        "hoodie.metadata.enable": "false",
        "hoodie.client.heartbeat.interval_in_ms": 2000,
        "hoodie.client.heartbeat.tolerable.misses": 10,
    },
}


def write(dag_id: str, task_id: str, **more: Any) -> None:
    """Make a DAG with one task that writes a day's partition."""
    arguments = ["{{ params.table }}", "--partition", DAY]
    if dag_id != "load_trips":
        arguments += ["--gate", "{{ params.gate }}", "--writer", task_id]
    with DAG(dag_id, schedule=None, params=PARAMS):
        HudiWriteOperator(task_id=task_id, application_args=arguments, **COMMON, **more)


write("load_trips", "load")
write("backfill_trips", "backfill")
write("correct_trips", "correct")
write("delete_trips", "delete", scope=[DAY])
