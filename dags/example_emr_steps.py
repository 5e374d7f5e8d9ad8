"""Two writers of one table as steps of an EMR cluster, with the queue in DynamoDB."""

from __future__ import annotations

from pathlib import Path

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.sdk import DAG, Param

from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.via import ARGUMENTS, RUNNER

JOB = str(Path(__file__).parent / "jobs" / "write_city.py")

with DAG(
    "example_emr_steps",
    description=__doc__,
    schedule=None,
    tags=["hudi", "example", "aws"],
    params={
        "table": Param("s3a://lake/cities", type="string"),
        "cluster": Param("j-2AXXXXXXGAPLF", type="string"),
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
            via=EmrAddStepsOperator,
            via_kwargs={
                "job_flow_id": "{{ params.cluster }}",
                "steps": [
                    {
                        "Name": city,
                        "ActionOnFailure": "CONTINUE",
                        "HadoopJarStep": {
                            "Jar": "command-runner.jar",
                            "Args": ["spark-submit", "--deploy-mode", "cluster", RUNNER, ARGUMENTS],
                        },
                    }
                ],
            },
        )
