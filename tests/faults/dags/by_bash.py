"""One write whose driver a command starts, and starts again if it fails, as services do."""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param
from quick_silence import QuickDriverTrigger

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.triggers.driver import HudiDriverTrigger
from airflow_occ_provider.via import ARGUMENTS, RUNNER

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate", "storage_conn_id")}
SUBMIT = f"spark-submit --master 'local[2]' --driver-memory 1g {RUNNER} {ARGUMENTS}"


class QuickWrite(HudiWriteOperator):
    """Has the triggerer follow its driver with less patience."""

    def defer(self, *, trigger, **given):
        if isinstance(trigger, HudiDriverTrigger):
            trigger = QuickDriverTrigger(**trigger.serialize()[1])
        super().defer(trigger=trigger, **given)


with DAG("by_bash", schedule=None, params=PARAMS, max_active_runs=8):
    QuickWrite(
        task_id="write",
        application="{{ params.job }}",
        application_args=["{{ params.table }}", "--gate", "{{ params.gate }}"],
        table="{{ params.table }}",
        storage_conn_id="{{ params.storage_conn_id }}",
        via=BashOperator,
        via_kwargs={"bash_command": f"for start in 1 2 3; do {SUBMIT} && exit 0; done; exit 1"},
        hudi_options={
            "hoodie.client.heartbeat.interval_in_ms": 2000,
            "hoodie.client.heartbeat.tolerable.misses": 5,
        },
        retry_delay=timedelta(seconds=1),
        retry_policy=HudiConflictRetryPolicy(base_delay=timedelta(seconds=1)),
    )
