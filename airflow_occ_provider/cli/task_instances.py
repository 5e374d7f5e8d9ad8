"""The states of the tasks of requests, and Airflow's audit log."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterable
from typing import Any

from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from airflow_occ_provider.leases.rules import Owner

_COLUMNS = ("dag_id", "run_id", "task_id", "map_index")
RELEASED = "hudi_lease_released"
"""The event of a release in Airflow's audit log."""


def task_states(owners: Iterable[Owner]) -> dict[Owner, str]:
    """Return the states of the owners' tasks, if this Airflow has them.

    A request for a whole run belongs to the task that made it. A mapped task's index is a part of its
    path.
    """
    keys = {owner: key for owner in owners if (key := _key(owner))}
    if not keys:
        return {}
    columns = [getattr(TaskInstance, name) for name in _COLUMNS]
    runs = {key[1] for key in keys.values()}
    try:
        with create_session() as session:
            rows = session.execute(
                select(*columns, TaskInstance.state).where(TaskInstance.run_id.in_(runs))
            )
            states = {tuple(row[:4]): str(row[4] or "no status") for row in rows}
    except SQLAlchemyError:  # the command also works where the database cannot be reached
        return {}
    return {owner: states[key] for owner, key in keys.items() if key in states}


def record_release(owner: Owner, request_id: str, table: str) -> tuple[str, bool]:
    """Record a release by force in Airflow's audit log, for the owner's task.

    :return: the account that released it, and whether Airflow's database has recorded it.
    """
    account, host, key = getpass.getuser(), socket.gethostname(), _key(owner)
    more: dict[str, Any] = dict(zip(_COLUMNS, key or (), strict=False))
    extra = json.dumps({"request": request_id, "table": table, "owner": str(owner), "host": host})
    releaser = f"{account}@{host}"
    try:
        with create_session() as session:
            session.add(Log(event=RELEASED, owner=account, extra=extra, **more))
    except SQLAlchemyError:
        return releaser, False
    return releaser, True


def _key(owner: Owner) -> tuple[str, str, str, int] | None:
    """Return the DAG, run, task and map index of an owner's task."""
    if len(owner.path) < 2:
        return None
    dag_id, run_id, *below = owner.path
    task_id, *index = below or [owner.label]
    if not task_id or len(index) > 1 or not all(map(str.isdigit, index)):
        return None
    return dag_id, run_id, task_id, int(index[0]) if index else -1
