"""A task instance and its state store, in memory."""

from __future__ import annotations

import json

from airflow.sdk import NEVER_EXPIRE
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse


class Store(dict):
    """Airflow's task state store: takes JSON values only."""

    refuses = 0

    def set(self, key, value, *, retention):
        assert retention is NEVER_EXPIRE
        if self.refuses:
            self.refuses -= 1
            raise AirflowRuntimeError(ErrorResponse(detail={"reason": "not_found"}))
        assert json.loads(json.dumps(value)) == value, "no JSON value"
        self[key] = value

    def delete(self, key):
        self.pop(key, None)


class Instance:
    """A task instance."""

    dag_id, run_id, task_id, map_index = "d", "r", "t", -1

    def __init__(self, number, max_tries):
        self.try_number, self.max_tries = number, max_tries


Task = Instance
