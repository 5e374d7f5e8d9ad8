"""The tables that have a page: those of the configuration, of tasks and of queues."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.configuration import conf
from airflow.exceptions import AirflowConfigException
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import Select, and_, func, select

from airflow_occ_provider.attempts.identity import Signature, TaskKey
from airflow_occ_provider.attempts.record import INSTANTS_KEY
from airflow_occ_provider.attempts.scope import HINTS
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.rules import QueuedRequest
from airflow_occ_provider.storage.address import canonical_table
from airflow_occ_provider.task.database import MOST_TASKS, newest_xcoms, xcoms
from airflow_occ_provider.task.table_link import TABLE_KEY, table_key
from airflow_occ_provider.ui import SECTION

_KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
# Of a path that a task names: others, such as http, would have the API server call any address.
_STORAGES = ("/", "s3://", "gs://", "abfs://", "hdfs://", "viewfs://")
_NO_TABLE = (ConfigurationError, ValueError)  # a text may have halves of characters
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table that has a page.

    :param key: by which URLs name it.
    :param path: canonical base path.
    :param storage_conn_id: connection of its storage; ``None`` for the API server's own credentials.
    :param lock_conn_id: connection of its queue; ``None`` if there is none.
    :param is_read: whether its storage is read: how is unknown of a table that only a queue names.
    """

    key: str
    path: str
    storage_conn_id: str | None = None
    lock_conn_id: str | None = None
    is_read: bool = True

    @classmethod
    def of(cls, value: Any) -> TableSource:
        """Return the table that the configuration or an XCom describes.

        :raises ConfigurationError: if it does not describe one.
        """
        fields = value if isinstance(value, Mapping) else {}
        path = canonical_table(fields.get("table"))
        key = fields.get("key") or table_key(path)
        storage, lock = fields.get("storage_conn_id") or None, fields.get("lock_conn_id") or None
        if not (isinstance(storage, str | None) and isinstance(lock, str | None)):
            raise _wrong("a connection is not a text", "give the id of a connection")
        if not (isinstance(key, str) and _KEY.fullmatch(key)):
            raise _wrong(f"{key!r} is not a key", "use small letters, digits and hyphens")
        if not path.startswith(_STORAGES):
            raise _wrong(f"{path!r} is on an unknown storage", f"use one of {', '.join(_STORAGES)}")
        return cls(key, path, storage, lock)


def _wrong(message: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"[{SECTION}] ui_tables", message, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Published:
    """What the newest tasks have published.

    :param tables: the table of each, the newest first.
    :param instants: requested times of the writes of each.
    """

    tables: Mapping[TaskKey, TableSource] = field(default_factory=dict)
    instants: Mapping[TaskKey, tuple[str, ...]] = field(default_factory=dict)

    def signed(self, path: str) -> dict[str, Signature]:
        """Return the tasks that write a table as signatures, by requested time.

        :param path: canonical base path.
        """
        return {
            time: Signature("", *task, try_number=0)
            for task, times in self.instants.items()
            if (source := self.tables.get(task)) and source.path == path
            for time in times
        }


def configured_tables() -> tuple[TableSource, ...]:
    """Return the tables of ``ui_tables``; a wrong entry is logged and left out."""
    try:
        entries = conf.getjson(SECTION, "ui_tables", fallback=[])
    except AirflowConfigException as error:
        _log.warning("[%s] ui_tables is not JSON: %s", SECTION, error)
        return ()
    return tuple(_described(entries if isinstance(entries, list) else [entries], logging.WARNING))


def read_published() -> Published:
    """Return what the newest tasks have published, from Airflow's database."""
    tables, instants = dict[TaskKey, TableSource](), dict[TaskKey, tuple[str, ...]]()
    with create_session() as session:
        for query in (newest_xcoms(TABLE_KEY), _newest_of_each_task(TABLE_KEY)):
            for *names, value in session.execute(query):
                described = _described([_without_key(value)], logging.DEBUG)
                tables.update((TaskKey(*names), source) for source in described)
        for *names, value in session.execute(newest_xcoms(INSTANTS_KEY)):
            if isinstance(value, list):
                instants[TaskKey(*names)] = tuple(map(str, value))
    return Published(tables, instants)


def _newest_of_each_task(key: str) -> Select[Any]:
    """Return the query for the newest XCom of each task: one that runs often hides no other."""
    last, task = func.max(XComModel.dag_run_id), (XComModel.dag_id, XComModel.task_id)
    newest = (
        select(last.label("run"), XComModel.task_id)
        .where(XComModel.key == key)
        .group_by(*task)
        .order_by(last.desc())
        .limit(MOST_TASKS)
        .subquery()
    )
    is_newest = and_(XComModel.dag_run_id == newest.c.run, XComModel.task_id == newest.c.task_id)
    rows = xcoms(key).join(newest, is_newest)
    return rows.order_by(XComModel.dag_run_id.desc()).limit(MOST_TASKS)


def union(
    named: Iterable[TableSource],
    queues: Mapping[str, Iterable[QueuedRequest]],
) -> dict[str, TableSource]:
    """Return all tables by key, each path once: the first one that names it wins.

    :param queues: the requests in the queues of lock connections, by connection.
    """
    sources = dict[str, TableSource]()
    for source in (*named, *_queued(queues)):
        sources.setdefault(source.path, source)
    return {source.key: source for source in sources.values()}


def by_key(tables: Mapping[str, TableSource], key: str) -> TableSource | None:
    """Return a table by its key, or by the one that links of tasks have."""
    named = (source for source in tables.values() if table_key(source.path) == key)
    return tables.get(key) or next(named, None)


def _queued(queues: Mapping[str, Iterable[QueuedRequest]]) -> Iterator[TableSource]:
    for lock_conn_id, requests in queues.items():
        paths = {path for queued in requests if not queued.unknown for path in queued.request.tables}
        for path in sorted(path for path in paths if not path.endswith(HINTS)):
            try:
                yield TableSource(table_key(path), path, None, lock_conn_id, is_read=False)
            except _NO_TABLE as error:
                _log.debug("A queued request names no table: %s", error)


def _without_key(value: Any) -> Any:
    """Return what a task published without a key: only the configuration gives keys."""
    return {**value, "key": None} if isinstance(value, Mapping) else value


def _described(entries: Iterable[Any], level: int) -> Iterator[TableSource]:
    for entry in entries:
        try:
            yield TableSource.of(entry)
        except _NO_TABLE as error:
            _log.log(level, "A table has no page: %s", error)
