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
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import boto3
import requests

from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.leases.dynamodb.access import NODE, QUEUE

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
JARS = "/usr/lib/hudi/hudi-spark-bundle.jar,/usr/lib/hudi/hudi-aws-bundle.jar"
_COMMITS = 3
_PERIOD_S = 10
_REQUEST_S = 60
_ENDED = ("success", "failed")
_APPLICATION_ENDED = ("CREATED", "STOPPED")
_LIVE_RUNS = ("SUBMITTED", "PENDING", "SCHEDULED", "RUNNING")


def main() -> int:
    """Run the two writers; return 1 unless it is proven what they show."""
    arguments = _arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with ExitStack() as resources:
        scratch = tempfile.TemporaryDirectory(prefix="prove_on_aws_", ignore_cleanup_errors=True)
        folder = Path(resources.enter_context(scratch))
        report, problem = [], "it was interrupted"
        try:
            application = arguments.application or resources.enter_context(_application(arguments))
            resources.enter_context(_lease_table(arguments))
            environment = _environment(arguments, application, folder)
            began_s = time.monotonic()
            with _airflow(folder, environment) as airflow:
                state = _run(environment, airflow, began_s + arguments.patience)
            problem = "" if state == "success" else f"the run ended as {state}"
            report = list(_report(arguments, folder, environment, time.monotonic() - began_s))
        except Exception as error:  # noqa: BLE001 - told in the report
            problem = f"{type(error).__name__}: {error}"
        finally:
            problem = problem or _missing(report)
            if problem:
                report += ["== Airflow", *_tail(folder / "standalone.log")]
            verdict = f"NOT PROVEN: {problem}" if problem else "PROVEN"
            text = without_account("\n".join([*report, verdict]))
            print(text)
            Path("prove_on_aws.txt").write_text(text + "\n")
    print(f"\nSend prove_on_aws.txt. The table is left: aws s3 rm --recursive {arguments.table}")
    return 1 if problem else 0


def without_account(text: str) -> str:
    """Return a text without numbers of accounts and names of keys."""
    return re.sub(r"(?<!\d)\d{12}(?!\d)|\b(?:AKIA|ASIA)\w{16}\b", "<account>", text)


def _missing(report: Iterable[str]) -> str:
    """Return what a successful run does not show; empty if it shows all."""
    lines = list(report)
    if not any("Outcome: " in line and "conflict" in line for line in lines):
        return "no writer lost a conflict: give a longer --overlap"
    commits = sum(bool(re.search(r"\| commit +\| COMPLETED", line)) for line in lines)
    return "" if commits == _COMMITS else f"the timeline shows {commits} commits, not {_COMMITS}"


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-30:] if log.exists() else []


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", required=True, help="s3://bucket/path, where no table is yet")
    parser.add_argument("--role", required=True, help="ARN of the jobs' role, see the page")
    parser.add_argument("--region", required=True)
    parser.add_argument("--application", default="", help="of EMR Serverless; by default a new one")
    parser.add_argument("--release", default="emr-7.12.0", help="of a new application")
    parser.add_argument("--lease-table", default="airflow_occ_prove", help="of DynamoDB, is created")
    parser.add_argument("--jars", default=JARS, help="Hudi's, in the image of the release")
    parser.add_argument(
        "--overlap", type=int, default=120, help="seconds that each write takes at least"
    )
    parser.add_argument("--patience", type=int, default=3600, help="seconds for the whole run")
    return parser.parse_args()


def _client(arguments: argparse.Namespace, service: str) -> Any:
    return boto3.client(service, region_name=arguments.region)


@contextmanager
def _application(arguments: argparse.Namespace) -> Iterator[str]:
    """Create an application of EMR Serverless for the time of a ``with`` block."""
    emr = _client(arguments, "emr-serverless")
    answer = emr.create_application(
        name="airflow-occ-prove", releaseLabel=arguments.release, type="SPARK"
    )
    application = str(answer["applicationId"])
    try:
        yield application
    finally:
        for run in emr.list_job_runs(applicationId=application)["jobRuns"]:
            if run["state"] in _LIVE_RUNS:
                emr.cancel_job_run(applicationId=application, jobRunId=run["id"])
        deadline = time.monotonic() + arguments.patience
        while (state := _state(emr, application)) not in _APPLICATION_ENDED:
            if state == "STARTED":
                with suppress(emr.exceptions.ValidationException):  # a run is still being cancelled
                    emr.stop_application(applicationId=application)
            _pause(deadline, f"application {application} is {state}: delete it by hand")
        emr.delete_application(applicationId=application)


def _state(emr: Any, application: str) -> str:
    return str(emr.get_application(applicationId=application)["application"]["state"])


@contextmanager
def _lease_table(arguments: argparse.Namespace) -> Iterator[None]:
    """Create the table of the leases for the time of a ``with`` block."""
    dynamodb, name = _client(arguments, "dynamodb"), arguments.lease_table
    keys = {QUEUE: "HASH", NODE: "RANGE"}
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
    """Return the environment of Airflow, which shares nothing with another one of this host."""
    dags = folder / "dags"
    dags.mkdir()
    (dags / "prove.py").write_text(DAGS)
    (folder / "job.py").write_text(JOB)
    settings = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}
    if arguments.jars:
        settings["spark.jars"] = arguments.jars
    prove = {
        "job": str(folder / "job.py"),
        "table": arguments.table,
        "role": arguments.role,
        "application": application,
        "overlap": arguments.overlap,
        "parameters": " ".join(f"--conf {key}={value}" for key, value in settings.items()),
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
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith("AIRFLOW") or name.startswith("AIRFLOW_CONN_")
        },
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db?timeout=300",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "PROVE_ON_AWS_URL": f"http://127.0.0.1:{port}",
        "PROVE_ON_AWS": json.dumps(prove),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }


@contextmanager
def _airflow(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
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
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_REQUEST_S)
            with suppress(ProcessLookupError):  # what it has left
                os.killpg(process.pid, signal.SIGKILL)


def _run(environment: dict[str, str], airflow: subprocess.Popen[bytes], deadline: float) -> str:
    """Start the run of the DAG, and return the state in which it ends.

    A request that fails is made again until the deadline: the run has one id.
    """
    url, state = environment["PROVE_ON_AWS_URL"], "not started"
    while state not in _ENDED:
        if airflow.poll() is not None:
            raise RuntimeError("Airflow has ended")
        before = state
        with suppress(requests.RequestException, KeyError, ValueError):
            state = _call(url, "GET", f"/dagRuns/{RUN}").get("state") or _start(url)
        if state != before:
            print(f"{time.strftime('%H:%M:%S')} the run is {state}", flush=True)
        if state not in _ENDED:
            _pause(deadline, f"the run is {state}")
    return state


def _start(url: str) -> str:
    """Ask for the run, if Airflow has read the DAG."""
    if _call(url, "PATCH", "", {"is_paused": False}).get("dag_id"):
        _call(url, "POST", "/dagRuns", {"dag_run_id": RUN, "logical_date": None})
    return "not started"


def _pause(deadline: float, why: str) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"{why}, and the time is over")
    time.sleep(_PERIOD_S)


def _call(url: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Call Airflow's API about the DAG; a refusal is an answer too."""
    token = requests.get(f"{url}/auth/token", timeout=_REQUEST_S).json()["access_token"]
    answer = requests.request(
        method,
        f"{url}/api/v2/dags/prove_on_aws{path}",
        json=body,
        headers={"Authorization": f"Bearer {token}"},
        timeout=_REQUEST_S,
    )
    return dict(answer.json())


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
    command = subprocess.run(
        ["airflow", "hudi", "timeline", arguments.table, "--conn-id", "aws_default"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    text = command.stdout if command.returncode == 0 else command.stderr[-2000:]
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
