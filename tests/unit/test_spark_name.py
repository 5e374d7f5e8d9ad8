from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG

from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.operators.task_run import SparkRun
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.processes import Flag

SUBMISSION = Submission("runner.py", AttemptFolder("/private"), b"{}")
OURS = "two_writers.write_b.manual__1"


@pytest.mark.parametrize(
    ("given", "default_args", "map_index", "expected"),
    [
        ({}, {}, None, OURS),
        ({}, {}, -1, OURS),
        ({}, {}, 0, "two_writers.write_b[0].manual__1"),
        ({"name": "arrow-spark"}, {}, None, "arrow-spark"),
        ({"name": "mine"}, {"name": "theirs"}, None, "mine"),
        ({}, {"name": "theirs"}, None, "theirs"),
        ({"conf": {"spark.app.name": "mine"}}, {}, None, None),
    ],
)
def test_the_spark_application_is_named_after_its_task_unless_the_user_named_it(
    monkeypatch, given, default_args, map_index, expected
):
    spark = {"conn_type": "spark", "host": "local[2]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
    with DAG("two_writers", schedule=None, default_args=default_args):
        task = HudiWriteOperator(task_id="write_b", application="a.py", table="/t", **given)
    ti = SimpleNamespace(
        dag_id="two_writers", task_id="write_b", run_id="manual__1", map_index=map_index
    )
    hook = SparkRun(task, {"ti": ti}, Flag())._attempt_hook(SUBMISSION)
    command = hook._build_spark_submit_command("runner.py")
    named = command[command.index("--name") + 1] if "--name" in command else None
    assert named == expected
    assert task.name == (given.get("name") or default_args.get("name") or "")
