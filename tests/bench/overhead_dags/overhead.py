"""The same write by ``SparkSubmitOperator`` and by ``HudiWriteOperator``; each step is timed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.bench.overhead import JOB, TABLE_OPTIONS, hand_written_options

FOLDER = "{{ params.folder }}"


def record(step):
    def note(context, *_):
        with Path(context["params"]["times"]).open("a") as file:
            file.write(f"{step} {time.time():.6f}\n")

    return note


def dag(name, operator, arguments, **given):
    with DAG(
        name,
        schedule=None,
        params={"folder": Param("", type="string"), "times": Param("", type="string")},
    ):
        operator(
            task_id="write",
            application=str(JOB),
            application_args=[f"{FOLDER}/{name}", *arguments],
            driver_memory="1g",
            env_vars={"BENCH_TIMES": "{{ params.times }}"},
            pre_execute=record("execute"),
            post_execute=record("executed"),
            **given,
        )


dag("bare", SparkSubmitOperator, [json.dumps({**TABLE_OPTIONS, **hand_written_options(os.environ)})])
dag("ours", HudiWriteOperator, [json.dumps(TABLE_OPTIONS)], table=f"{FOLDER}/ours")
