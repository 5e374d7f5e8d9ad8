"""One write in YARN, whose processes can be held before they defer and after they resume."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG, Param
from quick_driver import QuickDriverTrigger

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.retry_policy import HudiConflictRetryPolicy
from airflow_occ_provider.submitters.yarn_place import YarnPlace
from airflow_occ_provider.triggers.driver import HudiDriverTrigger

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate")}
GATE_TIMEOUT_S = 600


class HeldWrite(HudiWriteOperator):
    """Says which process runs it, and waits at its steps."""

    def execute(self, context):
        self._is_run_here()
        identify = YarnPlace.identify

        def identify_late(place, hello):
            self._pass_step("unrecorded")
            return identify(place, hello)

        YarnPlace.identify = identify_late  # this process runs no other task
        return super().execute(context)

    def execute_after_driver(self, context, event):
        self._is_run_here()
        self._pass_step("resumed")
        return super().execute_after_driver(context, event)

    def defer(self, *, trigger, **given):
        if isinstance(trigger, HudiDriverTrigger):
            self._pass_step("recorded")
            trigger = QuickDriverTrigger(**trigger.serialize()[1])
        super().defer(trigger=trigger, **given)

    def _is_run_here(self):
        file = Path(self._gate, "task.pid")
        file.with_suffix(".new").write_text(str(os.getpid()))
        file.with_suffix(".new").rename(file)

    @property
    def _gate(self):
        return self.application_args[2]

    def _pass_step(self, step):
        Path(self._gate, f"{step}.reached").touch()
        deadline = time.monotonic() + GATE_TIMEOUT_S
        while Path(self._gate, f"{step}.hold").exists() and time.monotonic() < deadline:
            time.sleep(0.05)


with DAG("remote", schedule=None, params=PARAMS, max_active_runs=8):
    HeldWrite(
        task_id="write",
        application="{{ params.job }}",
        application_args=["{{ params.table }}", "--gate", "{{ params.gate }}"],
        env_vars={"FAULTS_GATE": "{{ params.gate }}"},
        table="{{ params.table }}",
        spark_binary="spark2-submit",
        conf={
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.adaptive.enabled": "false",
            "spark.yarn.tags": "{{ params.table.rpartition('/')[2] }}",
        },
        hudi_options={
            "hoodie.client.heartbeat.interval_in_ms": 2000,
            "hoodie.client.heartbeat.tolerable.misses": 5,
        },
        retry_delay=timedelta(seconds=1),
        retry_policy=HudiConflictRetryPolicy(base_delay=timedelta(seconds=1)),
    )
