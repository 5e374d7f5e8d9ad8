"""``make demo``: two Airflow tasks write one Hudi table concurrently.

One task loses a conflict and retries. The lock service, Airflow, Spark and Hudi are real and listen on
loopback, except a metastore, which listens on all addresses. At the end the demo reads the table and
checks the result; the exit code is 0 if all checks pass.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.attempts.outcome import LogReading, Outcome, wasted
from airflow_occ_provider.embedded.bundle import find_bundle
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.reading.saved_log import read_saved_log
from airflow_occ_provider.via import ARGUMENTS, FOLDER, RUNNER
from tests.services.airflow import EmbeddedAirflow
from tests.services.celery import CeleryAirflow
from tests.services.dynamodb import EmbeddedDynamo
from tests.services.emr import ROLE, emulated_emr
from tests.services.livy import EmbeddedLivy
from tests.services.yarn import EmbeddedYarn
from tests.support.results import Result, add_result
from tests.support.stores import LOCAL as LOCAL_DISK
from tests.support.stores import STORES, Lake, started_store

DAG_ID = "two_writers"
LOCKS = {
    "zookeeper": "ZooKeeper",
    "metastore": "the Hive metastore",
    "storage": "a folder for the queue",
    "dynamodb": "DynamoDB for the queue, Hudi's lock in a folder",
}
LOCAL: dict[str, Any] = {"conn_type": "spark", "host": "local[2]"}
EXECUTORS = {"local": EmbeddedAirflow, "celery": CeleryAirflow}
SUBMITTERS = ("spark_submit", "yarn", "kubernetes")
# The arguments that replace those of spark-submit in the DAG.
_SPARK_ARGUMENTS = '"driver_memory": "1g",'
_BY_BASH = f"spark-submit --master 'local[2]' --driver-memory 1g {RUNNER} {ARGUMENTS}"
_BY_STEP = ("spark-submit", "--master", "local[2]", "--driver-memory", "1g")
VIAS: dict[str, tuple[str, dict[str, Any]]] = {
    "bash": (
        "airflow.providers.standard.operators.bash.BashOperator",
        {"bash_command": _BY_BASH},
    ),
    "livy": (
        "airflow.providers.apache.livy.operators.livy.LivyOperator",
        {"livy_conn_id": "livy", "file": RUNNER, "args": [ARGUMENTS], "driver_memory": "1g"},
    ),
    "emr_serverless": (
        "airflow.providers.amazon.aws.operators.emr.EmrServerlessStartJobOperator",
        {
            "execution_role_arn": ROLE,
            "job_driver": {
                "sparkSubmit": {
                    "entryPoint": RUNNER,
                    "entryPointArguments": [ARGUMENTS],
                    "sparkSubmitParameters": "--master local[2] --driver-memory 1g",
                }
            },
        },
    ),
    "emr_steps": (
        "airflow.providers.amazon.aws.operators.emr.EmrAddStepsOperator",
        {
            "steps": [
                {
                    "Name": "write",
                    "ActionOnFailure": "CONTINUE",
                    "HadoopJarStep": {
                        "Jar": "command-runner.jar",
                        "Args": [*_BY_STEP, RUNNER, ARGUMENTS],
                    },
                }
            ]
        },
    ),
    "glue": (
        "airflow.providers.amazon.aws.operators.glue.GlueJobOperator",
        {
            "script_location": RUNNER,
            "script_args": {"--scriptLocation": RUNNER, "--airflow_occ_folder": FOLDER},
        },
    ),
}
EMULATED = {"emr_serverless": "EMR Serverless", "emr_steps": "EMR", "glue": "Glue"}
"""Those of ``VIAS`` whose service is an emulator."""
WRITERS = ("write_a", "write_b")
EXPECTED_TRIPS = {"a": 150, "b": 150}
_DAG_TIMEOUT_S = 600
_RUN_TIMEOUT_S = 1200
_READ_TIMEOUT_S = 600
_POLL_S = 1.0
_TAIL_LINES = 30

console = Console(highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class Try:
    """One try of one task, from its log."""

    lines: list[str]
    task: str
    number: int
    state: str
    seconds: float
    reading: LogReading
    retry_reason: str | None


def main() -> int:
    """Run the demo; return 0 if all checks pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--dags", type=Path, default=Path("dags"), help="folder with two_writers.py")
    parser.add_argument(
        "--lock",
        choices=LOCKS,
        default="zookeeper",
        help="service of Hudi's lock and the writers' queue",
    )
    parser.add_argument(
        "--submitter", choices=SUBMITTERS, default="spark_submit", help="where the drivers run"
    )
    parser.add_argument(
        "--executor", choices=EXECUTORS, default="local", help="Airflow's executor: where tasks run"
    )
    parser.add_argument(
        "--store", choices=(LOCAL_DISK, *STORES), default=LOCAL_DISK, help="where the table is stored"
    )
    parser.add_argument("--via", choices=VIAS, help="the operator that starts the drivers instead")
    parser.add_argument("--keep", action="store_true", help="keep the UI running until Ctrl-C")
    args = parser.parse_args()
    if args.store != LOCAL_DISK and args.submitter != "spark_submit":
        parser.error(f"--store {args.store} runs with --submitter spark_submit only")
    if args.via and args.submitter != "spark_submit":
        parser.error("--via has no --submitter")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell ignores it
    folder = Path(tempfile.mkdtemp(prefix="airflow_occ_demo_", dir=os.environ.get("DEMO_FOLDER")))
    try:
        return _demo(args.dags.resolve(), folder, args)
    except EmbeddedError as error:
        console.print(str(error), style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _demo(dags: Path, folder: Path, args: argparse.Namespace) -> int:
    with ExitStack() as running:
        with _step("Hudi's bundle"):
            console.print(f"  {find_bundle().name}", highlight=False)
        with _step(f"the store ({args.store})") if args.store != LOCAL_DISK else nullcontext():
            store = running.enter_context(started_store(args.store, folder / "store"))
        with _step(LOCKS[args.lock]):
            lock: Any = "storage" if args.lock == "dynamodb" else args.lock
            stack = EmbeddedStack(folder / "stack", lock=lock, store=store)
            if args.submitter == "kubernetes":  # pods reach it, not only this machine
                everywhere = {"clientPortAddress": "0.0.0.0"}  # noqa: S104
                stack.zookeeper = EmbeddedZookeeper(folder / "zookeeper", settings=everywhere)
            running.enter_context(stack)
        spark, environment = LOCAL, stack.environment
        if args.submitter == "yarn":
            with _step("YARN"):
                yarn = running.enter_context(EmbeddedYarn(folder / "yarn"))
            spark, environment = yarn_connection(yarn), yarn.environment(stack.environment)
        if args.submitter == "kubernetes":
            spark = json.loads(_given("DEMO_SPARK"))
            environment = {**environment, "SPARK_CONF_DIR": _given("SPARK_CONF_DIR")}
        connections = {"spark_default": spark, "hudi_lock_default": stack.lock_connection}
        if args.lock == "dynamodb":
            dynamo = running.enter_context(EmbeddedDynamo(folder / "dynamodb"))
            dynamo.make_table()
            connections |= dynamo.connections(stack.folder / "lock")
        if args.via == "livy":
            with _step("Livy"):
                livy = running.enter_context(EmbeddedLivy(folder / "livy"))
            connections["livy"] = livy.connection
        further: dict[str, Any] = {}
        if args.via in EMULATED:
            with _step(f"{EMULATED[args.via]}, emulated"):
                emr = running.enter_context(emulated_emr(environment, stack.folder))
            connections["aws_default"] = emr.connection
            further = emr.names[args.via]
        if args.via:
            operator, kwargs = VIAS[args.via]
            dags = _via(dags, folder / "dags", operator, {**kwargs, **further})
        lake = Lake(folder / "lake", store)
        airflow = EXECUTORS[args.executor](folder / "airflow", dags, {**environment, **lake.variables})
        worker = ", Celery worker" if args.executor == "celery" else ""
        with _step(f"Airflow: scheduler, triggerer, DAG processor, API server{worker}"):
            running.enter_context(airflow)
        _connect(airflow, connections, lake)
        table = lake.path("trips")
        tries = _tries(airflow, _run(airflow, lake, table, folder / "latch"))
        _show(tries)
        problems = list(_check_tries(tries)) or list(_check_table(dags, table, stack))
        add_result(Result(_name(args), stack.hudi_version, 0, 1, int(bool(problems))))
        for problem in problems:
            console.print(f"NOT PROVEN: {problem}", style="red", markup=False)
        if not problems:
            console.print(
                "Proven: one conflict, one retry, each row of both writers exactly once.", style="green"
            )
        if args.keep:
            _keep(airflow)
        return 1 if problems else 0


def _name(args: argparse.Namespace) -> str:
    """Return the demo's name, with what was chosen other than by default."""
    lock = args.lock if args.lock != "zookeeper" else ""
    store = args.store if args.store != LOCAL_DISK else ""
    submitter = args.submitter if args.submitter != "spark_submit" else ""
    executor = args.executor if args.executor != "local" else ""
    return " ".join(filter(None, ("demo", lock, store, submitter, args.via, executor)))


@contextmanager
def _step(what: str) -> Iterator[None]:
    started = time.monotonic()
    console.print(f"starting {what} ...")
    yield
    console.print(f"  ready after {time.monotonic() - started:.1f} s")


def _given(name: str) -> str:
    """Return what the demo cannot know of the user's own cluster."""
    if name not in os.environ:
        raise EmbeddedError(f"{name} is not set: see Kubernetes in docs/how-to/cluster-mode.md")
    return os.environ[name]


def yarn_connection(yarn: EmbeddedYarn) -> dict[str, Any]:
    """Return the Spark connection of cluster mode on a YARN."""
    extra = {
        "deploy-mode": "cluster",
        "yarn_resourcemanager_webapp_address": yarn.resource_manager,
    }
    return {"conn_type": "spark", "host": "yarn", "extra": extra}


def _via(dags: Path, copy: Path, operator: str, kwargs: dict[str, Any]) -> Path:
    """Copy the DAGs; in the copy an operator starts the drivers."""
    shutil.copytree(dags, copy)
    dag = copy / f"{DAG_ID}.py"
    text = dag.read_text()
    if _SPARK_ARGUMENTS not in text:
        raise EmbeddedError(f"{dags / dag.name} has no {_SPARK_ARGUMENTS}")
    dag.write_text(text.replace(_SPARK_ARGUMENTS, f'"via": "{operator}", "via_kwargs": {kwargs},'))
    return copy


def _connect(airflow: EmbeddedAirflow, connections: dict[str, dict[str, Any]], lake: Lake) -> None:
    host = os.environ.get("DEMO_HOST", "127.0.0.1")
    lock = connections["hudi_lock_default"]
    lock["host"] = lock["host"].replace("127.0.0.1", host)
    for name, connection in {**connections, **lake.connections}.items():
        airflow.add_connection(name, **connection)
    deadline = time.monotonic() + _DAG_TIMEOUT_S
    while not airflow.has_dag(DAG_ID):
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"Airflow did not load the DAG {DAG_ID} from {airflow.dags} in {_DAG_TIMEOUT_S} s"
            )
        time.sleep(_POLL_S)


def _run(airflow: EmbeddedAirflow, lake: Lake, table: str, latch: Path) -> str:
    started = time.monotonic()
    conf = {"table": table, "latch": str(latch), "storage_conn_id": lake.conn_id}
    run_id = airflow.trigger(DAG_ID, conf)
    console.print(f"run {run_id} of the DAG {DAG_ID}: {airflow.url}/dags/{DAG_ID}/runs/{run_id}")
    seen: dict[str, tuple[str, int]] = {}
    path = f"/dags/{DAG_ID}/dagRuns/{run_id}"
    while True:
        state = airflow.call("GET", path)["state"]
        for task in airflow.call("GET", f"{path}/taskInstances")["task_instances"]:
            now = (task["state"] or "waiting", task["try_number"])
            if seen.get(task["task_id"]) != now:
                seen[task["task_id"]] = now
                elapsed = time.monotonic() - started
                console.print(f"  {elapsed:6.1f} s  {task['task_id']:<8} try {now[1]}  {now[0]}")
        if state in ("success", "failed"):
            return run_id
        if time.monotonic() - started > _RUN_TIMEOUT_S:
            raise EmbeddedError(f"the DAG run did not end in {_RUN_TIMEOUT_S} s")
        time.sleep(_POLL_S)


def _tries(airflow: EmbeddedAirflow, run_id: str) -> list[Try]:
    return [
        _read_try(one, airflow.log_lines(DAG_ID, run_id, task, one["try_number"]))
        for task in ("create", *WRITERS)
        for one in sorted(
            airflow.call("GET", f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task}/tries")[
                "task_instances"
            ],
            key=itemgetter("try_number"),
        )
    ]


def _read_try(one: dict[str, Any], lines: list[str]) -> Try:
    reason = next((line for line in reversed(lines) if line.startswith("Retry in ")), None)
    reading = read_saved_log(lines)
    return Try(
        lines=lines,
        task=one["task_id"],
        number=one["try_number"],
        state=str(one["state"]),
        seconds=one["duration"] or 0.0,
        reading=reading,
        retry_reason=reason,
    )


def _show(tries: list[Try]) -> None:
    table = Table("writer", "try", Column("outcome", no_wrap=True), Column("instant", no_wrap=True))
    table.add_column("seconds", justify="right")
    table.add_column("wasted", justify="right")
    for one in tries:
        lost = next(filter(None, map(wasted, one.lines)), "")  # the driver's seconds, not the try's
        outcome = str(one.reading.outcome)
        table.add_row(
            one.task, str(one.number), outcome, one.reading.instant or "-", f"{one.seconds:.1f}", lost
        )
    console.print(table)
    for one in tries:
        if one.reading.outcome is Outcome.COMMIT_CONFLICT:
            console.print(f"What Hudi logged for {one.task}:")
            for line in one.reading.lines:
                console.print(f"  {line}", markup=False)
            console.print(f"Why it was retried: {one.retry_reason}", markup=False)


def _check_tries(tries: list[Try]) -> Iterator[str]:
    lost = [one for one in tries if one.reading.outcome is Outcome.COMMIT_CONFLICT]
    if len(lost) != 1:
        yield f"{len(lost)} tries lost a conflict, not one"
    for one in lost:
        has_class = any("HoodieWriteConflictException" in line for line in one.lines)
        if not (has_class and one.reading.rival):
            yield f"the log of {one.task} does not show the conflict's class and both instants"
        if not one.retry_reason:
            yield f"the log of {one.task} does not show why it was retried"
    for task in ("create", *WRITERS):
        last = [one for one in tries if one.task == task][-1]
        if last.state != "success":
            tail = "\n".join(last.lines[-_TAIL_LINES:])
            yield f"try {last.number} of {task} ended in state {last.state}; the end of its log:\n{tail}"


def _check_table(dags: Path, table: str, stack: EmbeddedStack) -> Iterator[str]:
    console.print("reading the table ...")
    snapshot = Lake(Path(), stack.store).open(table).snapshot()
    signed: dict[str, list[str]] = {}
    for instant in snapshot.timeline.completed_writes():
        metadata = snapshot.reader.commit(instant)
        signature = Signature.from_extra(metadata.extra) if metadata else None
        if signature:
            signed.setdefault(signature.task_id, []).append(instant.time)
            console.print(
                f"  {instant} is signed by {signature.task_id}, try {signature.try_number}, "
                f"identity {signature.identity}"
            )
    for task in WRITERS:
        if len(signed.get(task, ())) != 1:
            yield f"{task} has {len(signed.get(task, ()))} signed commits, not one"
    counts = _count_rows(dags, table, stack)
    console.print(f"  rows by writer: {counts}", markup=False)
    if counts["counts"] != EXPECTED_TRIPS or counts["distinct"] != sum(EXPECTED_TRIPS.values()):
        yield f"the rows are {counts}, expected {EXPECTED_TRIPS}, each once"


def _count_rows(dags: Path, table: str, stack: EmbeddedStack) -> dict[str, Any]:
    job = dags / "jobs" / "count_trips.py"
    done = subprocess.run(
        ["spark-submit", "--master", "local[2]", "--driver-memory", "1g", str(job), table],
        env=stack.environment,
        capture_output=True,
        text=True,
        timeout=_READ_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise EmbeddedError(f"the table cannot be read:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _keep(airflow: EmbeddedAirflow) -> None:
    console.print(f"Airflow's UI: {airflow.url} (no password). Ctrl-C stops everything.")
    with suppress(KeyboardInterrupt):
        signal.pause()
    console.print("stopping ...")


if __name__ == "__main__":
    sys.exit(main())
