"""What Airflow's database knows of task runs: states, records and writes.

For processes that may reach the database: the commands and the API server, but no worker.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Collection, Iterable
from typing import Any

from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.state import TaskScope, get_state_backend
from airflow.utils.session import create_session
from sqlalchemy import Select, and_, select
from sqlalchemy.exc import SQLAlchemyError

from airflow_occ_provider.attempts.identity import Signature, TaskKey
from airflow_occ_provider.attempts.record import INSTANTS_KEY, RECORD_KEY, TaskRecord
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.task.run import site
from airflow_occ_provider.task.table_link import TABLE_KEY

MOST_TASKS = 1000
"""Task runs of which an XCom is read at once."""
RELEASED = "hudi_lease_released"
"""The event of a release in Airflow's audit log."""


def task_states(owners: Iterable[Owner]) -> dict[Owner, str]:
    """Return the states of the owners' tasks, if they are tasks of this Airflow.

    A request for a whole run belongs to the task that made it.
    """
    tasks = {owner: task for owner in owners if (task := _task_here(owner))}
    if not tasks:
        return {}
    columns = [getattr(TaskInstance, name) for name in TaskKey._fields]
    # A run may have thousands of tasks: those of other names are not read.
    runs = {task.run_id for task in tasks.values()}
    names = {task.task_id for task in tasks.values()}
    of_owners = and_(TaskInstance.run_id.in_(runs), TaskInstance.task_id.in_(names))
    try:
        with create_session() as session:
            rows = session.execute(select(*columns, TaskInstance.state).where(of_owners))
            states = {TaskKey(*key): str(state or "no status") for *key, state in rows}
    except SQLAlchemyError:  # the commands also work where the database cannot be reached
        return {}
    return {owner: states[task] for owner, task in tasks.items() if task in states}


def writing_tasks(table: str, instants: Collection[str]) -> dict[str, Signature]:
    """Return the tasks that announced writes of a table, by requested time.

    While its driver runs, a task publishes the instants of its writes. The try is not known.

    :param table: canonical base path.
    :param instants: requested times.
    """
    if not instants:
        return {}
    try:
        with create_session() as session:
            rows = session.execute(newest_xcoms(INSTANTS_KEY)).all()
            writes = {
                TaskKey(*key): times
                for *key, value in rows
                if isinstance(value, list) and (times := set(instants).intersection(map(str, value)))
            }
            runs = {task.run_id for task in writes}
            values = session.execute(xcoms(TABLE_KEY).where(XComModel.run_id.in_(runs))).all()
    except SQLAlchemyError:
        return {}
    tables = {TaskKey(*key): _path(value) for *key, value in values}
    return {
        time: Signature("", *task, try_number=0)
        for task, times in writes.items()
        if tables.get(task) == table
        for time in times
    }


def record_release(owner: Owner, request_id: str, table: str, account: str) -> bool:
    """Record a release by force in Airflow's audit log, for the owner's task.

    :param account: of the user that released it, see ``releaser``.
    :return: whether Airflow's database has recorded it.
    """
    user, _, host = account.partition("@")
    task = _task_here(owner)
    more: dict[str, Any] = task._asdict() if task else {}
    extra = json.dumps({"request": request_id, "table": table, "owner": str(owner), "host": host})
    try:
        with create_session() as session:
            session.add(Log(event=RELEASED, owner=user, extra=extra, **more))
    except SQLAlchemyError:
        return False
    return True


def releaser() -> str:
    """Return the account of this process and its machine, such as ``ann@node-1``."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def newest_xcoms(key: str) -> Select[Any]:
    """Return the query for an XCom of the newest DAG runs, each row with its task run."""
    return xcoms(key).order_by(XComModel.dag_run_id.desc()).limit(MOST_TASKS)


def xcoms(key: str) -> Select[Any]:
    """Return the query for all XComs of a key, each row with its task run."""
    columns = (getattr(XComModel, name) for name in TaskKey._fields)
    return select(*columns, XComModel.value).where(XComModel.key == key)


def _path(value: Any) -> str | None:
    try:
        return canonical_table(value["table"])
    except (ConfigurationError, ValueError, TypeError, KeyError):
        return None


def _task_here(owner: Owner) -> TaskKey | None:
    """Return the task run of an owner; another Airflow may have a run of the same name."""
    return TaskKey.of_owner(owner) if owner.site in ("", site()) else None


def task_record(dag_id: str, run_id: str, task_id: str, map_index: int) -> TaskRecord | None:
    """Return the record of a task run from Airflow's database; ``None`` without one.

    :param map_index: ``-1`` for a task that is not mapped.
    :raises ValueError: if the record cannot be read.
    """
    scope = TaskScope(dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index)
    stored = get_state_backend().get(scope, RECORD_KEY)
    if stored is None:
        return None
    try:
        return TaskRecord.from_json(json.loads(stored))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(str(error)) from error
