"""Two writers of one table by a job of Glue, with the queue in DynamoDB."""

from __future__ import annotations

from pathlib import Path

from airflow.providers.amazon.aws.operators.glue import GlueJobOperator
from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.via import FOLDER, RUNNER

JOB = str(Path(__file__).parent / "jobs" / "write_city.py")

with DAG(
    "example_glue",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example", "aws"],
    params={
        "table": Param("s3a://lake/cities", type="string"),
        "job": Param("trips", type="string"),
        "role": Param("glue", type="string"),
    },
) as dag:
    for city in ("berlin", "bogota"):
        HudiWriteOperator(
            task_id=f"write_{city}",
            application=JOB,
            application_args=["--table", "{{ params.table }}", "--city", city],
            table="{{ params.table }}",
            lock_conn_id="hudi_lock_default",  # of the type Hudi lock (DynamoDB)
            storage_conn_id="aws_default",
            via=GlueJobOperator,
            via_kwargs={
                "job_name": "{{ params.job }}",
                "iam_role_name": "{{ params.role }}",
                "script_location": RUNNER,
                "script_args": {"--scriptLocation": RUNNER, "--airflow_occ_folder": FOLDER},
            },
        )
