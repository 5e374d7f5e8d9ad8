"""The record of a task run, read outside of its tasks."""

from __future__ import annotations

import json

from airflow.state import TaskScope, get_state_backend

from airflow_occ_provider.attempts.record import RECORD_KEY, TaskRecord


def task_record(dag_id: str, run_id: str, task_id: str, map_index: int) -> TaskRecord | None:
    """Return the record of a task run from Airflow's database; ``None`` without one.

    :param map_index: ``-1`` for a task that is not mapped.
    :raises ValueError: if the record cannot be read.
    """
    scope = TaskScope(dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index)
    kept = get_state_backend().get(scope, RECORD_KEY)
    if kept is None:
        return None
    try:
        return TaskRecord.from_json(json.loads(kept))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
