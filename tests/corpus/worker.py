"""Runs a task try by try, as workers do."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

from airflow.sdk import RetryAction

from airflow_occ_provider.errors import OccError
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator


class Store(dict[str, Any]):
    """A task's state store."""

    def set(self, key: str, value: Any, **_: Any) -> None:
        self[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.pop(key, None)


class Instance:
    """The instance of a task, in one of its tries."""

    dag_id, run_id, map_index = "corpus", "r", -1

    def __init__(self, task_id: str, number: int, max_tries: int) -> None:
        self.task_id, self.try_number, self.max_tries = task_id, number, max_tries

    def xcom_push(self, **_: Any) -> None:
        """The result is returned as well."""


def run(arguments: dict[str, Any]) -> tuple[list[str], str]:
    """Run a task until it succeeds or is not retried; return its commits, or its last error."""
    store, number, own_failures = Store(), 0, 0
    while True:
        number += 1
        task = HudiWriteOperator(**arguments)
        context = {
            "ti": Instance(task.task_id, number, task.retries),
            "task": task,
            "task_state_store": store,
            "outlet_events": {},
        }
        try:
            return list(task.execute(context).get("instants") or ()), ""
        except OccError as error:
            print(f"try {number}: {type(error).__name__}: {error}", flush=True)
            decision = task.retry_policy.evaluate(error, number, task.retries, context)
            own_failures += decision.action is RetryAction.DEFAULT
            is_last = decision.action is RetryAction.FAIL or own_failures > arguments["retries"]
            if is_last:
                return [], f"{type(error).__name__}: {error}"


def main(request: str, answer: str) -> None:
    """Run the task of a file with its arguments; write its result to another."""
    instants, error = run(json.loads(Path(request).read_text()))
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    Path(answer).write_text(json.dumps({"instants": instants, "error": error, "mib": mib}))
