"""What tests ask of an Airflow that runs tasks."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from pathlib import Path

import psutil

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.storage.table import HudiTable
from tests.faults.processes import drivers

SPARK_STARTED = "Spark-Submit cmd"


def signatures(table):
    snapshot = HudiTable(str(table)).snapshot()
    commits = [snapshot.reader.commit(i) for i in snapshot.timeline.completed_writes()]
    return [Signature.from_extra(commit.extra) for commit in commits]


def driver_of(table):
    """Return the JVM of the driver that writes a table."""
    return next(iter(drivers(table)), None)


def session_of(leader):
    """Return the running processes of a session."""
    members = []
    for process in psutil.process_iter(["status"]):
        with contextlib.suppress(OSError):
            if os.getsid(process.pid) == leader and process.info["status"] != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def error_of(airflow, run, task_id):
    """Return what the UI shows of the error that ended a try."""
    path = f"/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{task_id}/logs/1"
    return json.dumps(airflow.call("GET", f"{path}?full_content=true")["content"])


JOB = Path(__file__).parents[1] / "jobs" / "stepped_write.py"
ONCE = Counter({str(number): 1 for number in range(20)})


def clear(run, *task_ids):
    body = {
        "dry_run": False,
        "dag_run_id": run.run_id,
        "only_failed": False,
        "task_ids": list(task_ids or ("write",)),
    }
    run.airflow.call("POST", f"/dags/{run.dag_id}/clearTaskInstances", body)


def unpause_and_parse(airflow, *dag_ids):
    """Unpause DAGs; the assets of the first are watched only once its file is read again."""
    for dag_id in dag_ids:
        airflow.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
    file = airflow.call("GET", f"/dags/{dag_ids[0]}")["file_token"]
    airflow.call("PUT", f"/parseDagFile/{file}")
