"""One job, as a driver of its worker and of a BashOperator; and a BashOperator that prints alone."""

from __future__ import annotations

import sys

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Param

from airflow_occ_provider.attempts.attempt import AttemptRecorder
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.via import ARGUMENTS, RUNNER
from tests.bench.printing import ALONE, CLIENT, JOB, MASTER, UNLOGGED, VIA, note_attempt

AMOUNT = ["{{ params.seconds }}", "{{ params.rate }}"]
TIMES = {"BENCH_TIMES": "{{ params.times }}"}
SUBMIT = f"exec spark-submit --master '{MASTER}' --driver-memory 1g {RUNNER} {ARGUMENTS}"


def observe(context):
    note_attempt(AttemptRecorder, context["params"]["times"])


def dag(name):
    names = ("table", "times")
    numbers = ("seconds", "rate")
    return DAG(
        name,
        schedule=None,
        params={
            **{name: Param("", type="string") for name in names},
            **{name: Param(0, type="number") for name in numbers},
        },
    )


def write(**place):
    HudiWriteOperator(
        task_id="write",
        application=str(JOB),
        application_args=AMOUNT,
        table="{{ params.table }}",
        deferrable=False,
        pre_execute=observe,
        **place,
    )


with dag(CLIENT):
    write(driver_memory="1g", env_vars=TIMES)

with dag(VIA):
    write(
        via="airflow.providers.standard.operators.bash.BashOperator",
        via_kwargs={"bash_command": SUBMIT, "append_env": True, "env": TIMES},
    )

for name, end in ((ALONE, ""), (UNLOGGED, " | cat > /dev/null")):
    with dag(name):
        BashOperator(
            task_id="write",
            bash_command=f"{sys.executable} {JOB} {' '.join(AMOUNT)} --bare{end}",
            append_env=True,
            env=TIMES,
        )
