"""Writes whose commits are counted: as many as the user meant, whatever Airflow does to the task."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate")}
COMMON: dict[str, Any] = {
    "table": "{{ params.table }}",
    "driver_memory": "1g",
    "env_vars": {"WRITES": "{{ params.table }}"},
    "retry_policy": HudiConflictRetryPolicy(base_delay=timedelta(seconds=5)),
    "hudi_options": {
        "hoodie.metadata.enable": "false",  # a quarter of what a driver costs; the fault rig has it on
        "hoodie.client.heartbeat.interval_in_ms": 2000,
        "hoodie.client.heartbeat.tolerable.misses": 5,
    },
}
ARGUMENTS = ["{{ params.table }}", "--gate", "{{ params.gate }}"]

with DAG("once", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write", application="{{ params.job }}", application_args=ARGUMENTS, **COMMON
    )

with DAG("restless", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write",
        application="{{ params.gate }}/{{ ti.try_number }}/job.py",
        application_args=[*ARGUMENTS, "--note", "{{ ti.try_number }} {{ macros.datetime.now() }}"],
        retries=1,
        retry_delay=timedelta(seconds=1),
        **COMMON,
    )

with DAG("changed", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write",
        application="{{ params.job }}",
        application_args=[*ARGUMENTS, "--note", "{{ ti.try_number }}"],
        **COMMON,
    )

with DAG("hasty", schedule=None, params=PARAMS):
    HudiWriteOperator(
        task_id="write",
        application="{{ params.job }}",
        application_args=ARGUMENTS,
        retries=1,
        retry_delay=timedelta(seconds=1),
        execution_timeout=timedelta(hours=1),
        **COMMON,
    )

with DAG(
    "dated", schedule="@daily", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, params=PARAMS
):
    HudiWriteOperator(
        task_id="write",
        application="{{ params.job }}",
        application_args=[*ARGUMENTS, "--key", "{{ ds }}-"],
        **COMMON,
    )

with DAG("items", schedule=None, params=PARAMS):

    @task
    def items(params: dict[str, str]) -> list[list[str]]:
        """Return the items; each is written by a mapped task."""
        names = json.loads(Path(params["gate"], "items.json").read_text())
        return [[params["table"], "--gate", params["gate"], "--key", f"{name}-"] for name in names]

    HudiWriteOperator.partial(
        task_id="write",
        application="{{ params.job }}",
        max_active_tis_per_dag=2,
        **COMMON,
    ).expand(application_args=items())
