"""Two writers of one Hudi table on EMR Serverless: a conflict, a retry, both commits.

It starts an Airflow of its own, ends it, and deletes what it made, except the table. What it prints is
also in ``prove_on_aws.txt``. The page "Prove it on AWS" says what it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import boto3
import requests

from airflow_occ_provider.embedded.ports import free_port

JOB = """
import sys, time
from pyspark.sql import SparkSession

table, writer, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
spark = SparkSession.builder.getOrCreate()

def row(number):
    if number == 0:
        time.sleep(seconds)  # both writers are in their writes at the same time
    return f"{number}", "berlin", time.time_ns(), writer

rows = spark.sparkContext.parallelize(range(50), 1).map(row)
options = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "uuid",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
}
frame = spark.createDataFrame(rows, "uuid string, city string, ts long, writer string")
frame.write.format("hudi").options(**options).mode("append").save(table)
"""
DAGS = """
import json, os
from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.sdk import DAG
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.via import ARGUMENTS, RUNNER

prove = json.loads(os.environ["PROVE_ON_AWS"])
submit = {"entryPoint": RUNNER, "entryPointArguments": [ARGUMENTS]}

def write(name, seconds):
    return HudiWriteOperator(
        task_id=name,
        application=prove["job"],
        application_args=[prove["table"], name, str(seconds)],
        table=prove["table"],
        storage_conn_id="aws_default",
        via=EmrServerlessStartJobOperator,
        via_kwargs={
            "application_id": prove["application"],
            "execution_role_arn": prove["role"],
            "job_driver": {"sparkSubmit": {**submit, "sparkSubmitParameters": prove["parameters"]}},
        },
    )

with DAG("prove_on_aws", schedule=None):
    write("create", 0) >> [write("write_a", prove["overlap"]), write("write_b", prove["overlap"])]
"""
RUN = "prove"
_PERIOD_S = 10
_PATIENCE_S = 3600
_ENDED = ("success", "failed")


def main() -> int:
    """Run it; return 1 unless both writers committed and one of them had lost a conflict."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="prove_on_aws_") as scratch, ExitStack() as made:
        folder = Path(scratch)
        application = arguments.application or made.enter_context(_application(arguments))
        made.enter_context(_lease_table(arguments))
        environment = _environment(arguments, application, folder)
        began_s = time.time()
        with _airflow(folder, environment):
            state = _run(environment)
        report = list(_report(arguments, folder, environment, time.time() - began_s))
        lost = [line for line in report if "Outcome: " in line and "conflict" in line]
        verdict = "PROVEN" if state == "success" and lost else f"NOT PROVEN: the run ended as {state}"
        if state == "success" and not lost:
            verdict += ", but no writer lost a conflict: give a longer --overlap"
        text = re.sub(r"\b\d{12}\b", "<account>", "\n".join([*report, verdict]))
    print(text)
    Path("prove_on_aws.txt").write_text(text + "\n")
    print(f"\nSend prove_on_aws.txt. The table is left: aws s3 rm --recursive {arguments.table}")
    return 0 if verdict == "PROVEN" else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", required=True, help="s3://bucket/path, where no table is yet")
    parser.add_argument("--role", required=True, help="ARN of the jobs' role, see the page")
    parser.add_argument("--region", required=True)
    parser.add_argument("--application", default="", help="of EMR Serverless; by default a new one")
    parser.add_argument("--release", default="emr-7.12.0", help="of a new application")
    parser.add_argument("--lease-table", default="airflow_occ_prove", help="of DynamoDB, is created")
    parser.add_argument(
        "--jars", default="/usr/lib/hudi/hudi-spark-bundle.jar,/usr/lib/hudi/hudi-aws-bundle.jar"
    )
    parser.add_argument(
        "--overlap", type=int, default=120, help="seconds that each write takes at least"
    )
    return parser.parse_args()


def _client(arguments: argparse.Namespace, service: str) -> Any:
    return boto3.client(service, region_name=arguments.region)


@contextmanager
def _application(arguments: argparse.Namespace) -> Iterator[str]:
    """Create an application of EMR Serverless for the time of a ``with`` block."""
    emr = _client(arguments, "emr-serverless")
    made = emr.create_application(name="airflow-occ-prove", releaseLabel=arguments.release, type="SPARK")
    application = str(made["applicationId"])
    try:
        yield application
    finally:
        emr.stop_application(applicationId=application)
        deadline = time.monotonic() + _PATIENCE_S
        while emr.get_application(applicationId=application)["application"]["state"] not in (
            "STOPPED",
            "CREATED",
        ):
            if time.monotonic() > deadline:
                raise TimeoutError(f"application {application} does not stop: delete it by hand")
            time.sleep(_PERIOD_S)
        emr.delete_application(applicationId=application)


@contextmanager
def _lease_table(arguments: argparse.Namespace) -> Iterator[None]:
    """Create the table of the leases for the time of a ``with`` block."""
    dynamodb, name = _client(arguments, "dynamodb"), arguments.lease_table
    keys = {"queue": "HASH", "node": "RANGE"}
    dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )
    try:
        dynamodb.get_waiter("table_exists").wait(TableName=name)
        yield
    finally:
        dynamodb.delete_table(TableName=name)


def _environment(arguments: argparse.Namespace, application: str, folder: Path) -> dict[str, str]:
    """Return the environment of Airflow; a connection that is in this process's is kept."""
    dags = folder / "dags"
    dags.mkdir()
    (dags / "prove.py").write_text(DAGS)
    (folder / "job.py").write_text(JOB)
    jars = f" --conf spark.jars={arguments.jars}" if arguments.jars else ""
    serializer = "--conf spark.serializer=org.apache.spark.serializer.KryoSerializer"
    prove = {
        "job": str(folder / "job.py"),
        "table": arguments.table,
        "role": arguments.role,
        "application": application,
        "overlap": arguments.overlap,
        "parameters": serializer + jars,
    }
    region = {"region_name": arguments.region}
    lock = {
        "conn_type": "hudi_dynamodb_lock",
        "host": arguments.lease_table,
        "extra": {"region": arguments.region},
    }
    port = free_port()
    return {
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps({"conn_type": "aws", "extra": region}),
        "AIRFLOW_CONN_HUDI_LOCK_DEFAULT": json.dumps(lock),
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "PROVE_ON_AWS_URL": f"http://127.0.0.1:{port}",
        "PROVE_ON_AWS": json.dumps(prove),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


@contextmanager
def _airflow(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run Airflow for the time of a ``with`` block."""
    with (folder / "standalone.log").open("wb") as log:
        process = subprocess.Popen(
            ["airflow", "standalone"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _run(environment: dict[str, str]) -> str:
    """Start the run of the DAG, and return the state in which it ends."""
    url, deadline = environment["PROVE_ON_AWS_URL"], time.monotonic() + _PATIENCE_S
    while not _has_dag(url):
        _pause(deadline, "Airflow has not read the DAG")
    _call(url, "PATCH", "", {"is_paused": False})
    _call(url, "POST", "/dagRuns", {"dag_run_id": RUN, "logical_date": None})
    shown = ""
    while True:
        state = str(_call(url, "GET", f"/dagRuns/{RUN}")["state"])
        if state != shown:
            print(f"{time.strftime('%H:%M:%S')} the run is {state}", flush=True)
            shown = state
        if state in _ENDED:
            return state
        _pause(deadline, f"the run is {state}")


def _has_dag(url: str) -> bool:
    try:
        _call(url, "GET", "")
    except requests.RequestException:
        return False
    return True


def _call(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """Call Airflow's API about the DAG."""
    token = requests.get(f"{url}/auth/token", timeout=60).json()["access_token"]
    answer = requests.request(
        method,
        f"{url}/api/v2/dags/prove_on_aws{path}",
        json=body,
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    )
    answer.raise_for_status()
    return answer.json()


def _pause(deadline: float, why: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"{why} in {_PATIENCE_S} s")
    time.sleep(_PERIOD_S)


def _report(
    arguments: argparse.Namespace, folder: Path, environment: dict[str, str], seconds: float
) -> Iterable[str]:
    """Yield the lines to send: versions, what the tasks logged, the table's timeline."""
    for package in (
        "airflow-occ-provider",
        "apache-airflow",
        "apache-airflow-providers-amazon",
        "boto3",
    ):
        yield f"{package} {version(package)}"
    yield f"Python {sys.version.split()[0]}, {arguments.release}, {arguments.region}, {seconds:.0f} s"
    for log in sorted((folder / "logs").rglob("task_id=*/attempt=*.log")):
        yield f"== {log.parent.name.removeprefix('task_id=')} {log.stem}"
        yield from _of_the_provider(log)
    yield "== timeline"
    done = subprocess.run(
        ["airflow", "hudi", "timeline", arguments.table, "--conn-id", "aws_default"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    text = done.stdout if done.returncode == 0 else done.stderr[-2000:]
    yield from (line.rstrip() for line in text.strip().splitlines())


def _of_the_provider(log: Path) -> Iterable[str]:
    """Yield what the operator logged in a try, and its errors."""
    for line in log.read_text().splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if "airflow_occ_provider" in str(entry.get("logger")) or entry.get("level") in (
            "error",
            "critical",
        ):
            yield f"{entry.get('timestamp')} {entry.get('event')}"


if __name__ == "__main__":
    sys.exit(main())
