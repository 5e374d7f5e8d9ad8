"""Four writers without retries of their own: an operator and a function, plain and mapped."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_occ_provider import WritePolicy
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

PARAMS = {name: Param("", type="string") for name in ("job", "table", "gate")}
ARGUMENTS = ["{{ params.table }}", "--gate", "{{ params.gate }}"]
NAMES = ("plain", "mapped", "function", "mapped_function")
COMMON: dict[str, Any] = {
    "table": "{{ params.table }}",
    "driver_memory": "1g",
    "hudi_options": {"hoodie.metadata.enable": "false"},
    # Hudi refuses the commit itself.
    "policy": WritePolicy(early_conflict_detection=False, early_stop=False, preflight_timeout=0),
}


def arguments(name: str) -> list[str]:
    """Return the arguments of the job, each writer with a partition of its own."""
    return [*ARGUMENTS, "--writer", name, "--partition", str(NAMES.index(name))]


@task.hudi_write(**COMMON)
def write(spark: Any, script: str, words: list[str]) -> None:
    """Run the job's file with its arguments."""
    import runpy
    import sys

    sys.argv = [script, *words]
    runpy.run_path(script, run_name="__main__")


with DAG("retried", schedule=None, params=PARAMS, default_args={"retries": 0}):
    HudiWriteOperator(
        task_id="plain",
        application="{{ params.job }}",
        application_args=arguments("plain"),
        **COMMON,
    )
    HudiWriteOperator.partial(task_id="mapped", application="{{ params.job }}", **COMMON).expand(
        application_args=[arguments("mapped")]
    )
    write.override(task_id="function")("{{ params.job }}", arguments("function"))
    write.override(task_id="mapped_function").partial(script="{{ params.job }}").expand(
        words=[arguments("mapped_function")]
    )
