"""``HudiTableHook``: reads a Hudi table's metadata from its storage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.attempts.commit import Commit, find_commit
from airflow_occ_provider.errors import ConfigurationError, OccError
from airflow_occ_provider.hooks.hudi_lock import Fields, lock_hook
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.conflict.verdict import Verdict
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint
from airflow_occ_provider.hudi.incremental.window import MOST_COMMITS
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.heartbeat import DEFAULT_RULE, HeartbeatRule
from airflow_occ_provider.reading.overview import read_state
from airflow_occ_provider.reading.table_state import TableState
from airflow_occ_provider.storage.address import fsspec_scheme, over_http, parse_table_path
from airflow_occ_provider.storage.conflicts import Setup, verdicts
from airflow_occ_provider.storage.incremental import IncrementalRead, incremental_read
from airflow_occ_provider.storage.listing import is_s3
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import DEFAULT_TIMEOUT_S, HudiTable
from airflow_occ_provider.storage.writers import (
    PendingInstant,
    living_writers,
    pending_table_services,
    pending_writers,
)

if TYPE_CHECKING:
    from airflow.sdk import Connection

_PROVIDERS = {
    "s3": "apache-airflow-providers-amazon[s3fs]",
    "gs": "apache-airflow-providers-google, which has gcsfs",
    "abfs": "apache-airflow-providers-microsoft-azure, which has adlfs",
}


class HudiTableHook(BaseHook):
    """A hook that reads one Hudi table: its timeline, writers and conflicts.

    It writes nothing and starts no Spark. Every method reads the current state, with one listing and the
    timeline files that are new since the last call. It raises ``TableUnreadableError`` if the storage
    cannot be read. The methods with the prefix ``a`` are for triggers: they do the same in a thread.

    The table is named by its path, or by a connection of the type *Hudi table*::

        HudiTableHook("s3a://lake/trips", "lake").timeline()
        HudiTableHook(table_conn_id="trips").timeline()

    :param table: base path of the table, absolute or a URL. Default: that of the connection.
    :param storage_conn_id: Airflow connection of the storage (``aws``, ``google_cloud_platform``,
        ``wasb``, ...). Default: that of the table's connection, else the worker's own credentials.
    :param table_conn_id: connection of the table; not used if ``table`` is given.
    :param timeout_s: time-out of one request to the storage, in seconds.
    """

    conn_name_attr = "table_conn_id"
    default_conn_name = "hudi_table_default"
    conn_type = "hudi_table"
    hook_name = "Hudi table"

    def __init__(
        self,
        table: str | None = None,
        storage_conn_id: str | None = None,
        *,
        table_conn_id: str = default_conn_name,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        super().__init__()
        self.table_conn_id = table_conn_id
        self.timeout_s = timeout_s
        self._table = table
        self._storage_conn_id = storage_conn_id
        self._last: Snapshot | None = None

    @cached_property
    def table(self) -> str:
        """Base path of the table.

        :raises ConfigurationError: if the connection that should name it is missing or wrong.
        """
        if self._table is not None:
            return self._table
        fields = Fields(self._connection)
        if not self._connection.host:
            raise fields.error("base path", "it is empty", "enter the base path of the table")
        return self._connection.host

    @cached_property
    def storage_conn_id(self) -> str | None:
        """Airflow connection of the storage; ``None`` for the worker's own credentials."""
        if self._storage_conn_id or self._table is not None:
            return self._storage_conn_id
        return Fields(self._connection).text("storage_conn_id") or None

    def get_conn(self) -> HudiTable:
        """Return the reader of the table, without an open connection."""
        return self._reader

    def test_connection(self) -> tuple[bool, str]:
        """Return the result for Airflow's *Test* button: whether the table can be read."""
        try:
            snapshot = self.snapshot()
        except OccError as error:
            return False, str(error)
        timeline, version = snapshot.timeline, snapshot.config.version
        last_write = timeline.latest_completed_write or "none"
        return True, (
            f"{self.table} is a Hudi table of version {version} with {len(timeline.instants)} active "
            f"instants. Last completed write: {last_write}."
        )

    def snapshot(self) -> Snapshot:
        """Read the table's current state.

        :raises NotHudiTableError: if there is no table at the path.
        """
        self._last = self._reader.snapshot(self._last)
        return self._last

    def timeline(self) -> Timeline:
        """Return the active timeline, oldest instant first."""
        return self.snapshot().timeline

    def live_writers(self) -> tuple[PendingInstant, ...]:
        """Return the pending writes whose heartbeats have not expired, oldest first."""
        return living_writers(self._reader, self.snapshot())

    def pending_writers(self) -> tuple[PendingInstant, ...]:
        """Return all pending writes, with and without live heartbeats, oldest first."""
        return pending_writers(self._reader, self.snapshot())

    def pending_table_services(self) -> tuple[PendingInstant, ...]:
        """Return the pending compactions and clusterings, oldest first."""
        return pending_table_services(self.snapshot())

    def conflicts(
        self,
        instant: str,
        strategy: Strategy | None = None,
        writer_version: tuple[int, int] | None = None,
        *,
        early: EarlyDetection = EarlyDetection.OFF,
        writing: bool = True,
    ) -> Verdict | None:
        """Return whether Hudi will refuse the commit of a pending write, with the rivals.

        :param instant: its requested time.
        :param strategy: its conflict resolution strategy. Default: the one that Hudi chooses for the
            table's index.
        :param writer_version: major and minor number of its Hudi. Default: derived from its files, or
            ``possible`` if they do not show it.
        :param early: its strategy of early conflict detection, which is evaluated too.
        :param writing: whether it may still begin files; ``False`` if only its commit is left.
        :returns: ``None`` if the active timeline has no such pending instant.
        """
        setup = Setup(strategy, writer_version, early, writing=writing)
        return verdicts(self._reader, self.snapshot(), setup, only=instant).get(instant)

    def verdicts(
        self, strategy: Strategy | None = None, writer_version: tuple[int, int] | None = None
    ) -> dict[str, Verdict]:
        """Return the verdicts on all pending writes by requested time, in one pass.

        :param strategy: as for ``conflicts``.
        :param writer_version: as for ``conflicts``.
        """
        return verdicts(self._reader, self.snapshot(), Setup(strategy, writer_version))

    def overview(self, lock_conn_id: str | None = None, *, minutes: float = 60) -> TableState:
        """Return the table's writers, queue and dead writers, as its page shows them.

        :param lock_conn_id: lock connection of its queue; without one, the queue is left out.
        :param minutes: how far back completed instants are taken.
        :raises LockUnreachableError: if the lock service does not answer.
        """
        queue = None
        if lock_conn_id:
            with closing(lock_hook(lock_conn_id).leases()) as leases:
                queue = leases.requests()
        since_ms = round((time.time() - minutes * 60) * 1000)
        state, self._last = read_state(self._reader, queue, since_ms, previous=self._last)
        return state

    def find_commit(self, identity: str) -> Commit | None:
        """Return the write commit that a task run signed with its identity, if any.

        :param identity: the task run's uuid, ``_airflow_identity`` in the commit's extra metadata.
        """
        return find_commit(self.snapshot(), identity)

    def incremental_window(
        self,
        since: Checkpoint | Mapping[str, Any] | None = None,
        *,
        rule: HeartbeatRule = DEFAULT_RULE,
        most: int = MOST_COMMITS,
    ) -> IncrementalRead:
        """Return the largest window in which no pending write can still land.

        Its ``window.checkpoint`` is what the next call takes, once its rows were read.

        :param since: what the consumer has read, also as JSON values. Default: nothing, so that the
            window begins with the table.
        :param rule: by which the writers' heartbeats are judged, where live writers hold the window up:
            before table version 8, whose commits have no completion time.
        :param most: at most so many commits.
        :raises CheckpointLostError: if the table was made anew, or restored to an earlier state.
        """
        checkpoint = Checkpoint.from_json(since) if isinstance(since, Mapping) else since
        return incremental_read(self._reader, checkpoint, rule, most=most)

    async def aincremental_window(self, *args: Any, **kwargs: Any) -> IncrementalRead:
        """Return what ``incremental_window`` does with these arguments, in a thread."""
        return await asyncio.to_thread(self.incremental_window, *args, **kwargs)

    async def asnapshot(self) -> Snapshot:
        """Read the table's current state in a thread."""
        return await asyncio.to_thread(self.snapshot)

    async def atimeline(self) -> Timeline:
        """Return the active timeline, in a thread."""
        return await asyncio.to_thread(self.timeline)

    async def alive_writers(self) -> tuple[PendingInstant, ...]:
        """Return the pending writes whose heartbeats have not expired, in a thread."""
        return await asyncio.to_thread(self.live_writers)

    async def apending_writers(self) -> tuple[PendingInstant, ...]:
        """Return all pending writes, in a thread."""
        return await asyncio.to_thread(self.pending_writers)

    async def apending_table_services(self) -> tuple[PendingInstant, ...]:
        """Return the pending table services, read in a thread."""
        return await asyncio.to_thread(self.pending_table_services)

    async def aconflicts(self, instant: str, *args: Any, **kwargs: Any) -> Verdict | None:
        """Tell whether Hudi will refuse a pending write's commit, read in a thread.

        :param instant: its requested time; the other arguments are those of ``conflicts``.
        """
        return await asyncio.to_thread(self.conflicts, instant, *args, **kwargs)

    async def afind_commit(self, identity: str) -> Commit | None:
        """Return the write commit of an identity, in a thread."""
        return await asyncio.to_thread(self.find_commit, identity)

    @cached_property
    def _connection(self) -> Connection:
        try:
            connection = self.get_connection(self.table_conn_id)
        except AirflowNotFoundException as error:
            raise ConfigurationError(
                self.conn_name_attr,
                f"connection {self.table_conn_id!r} does not exist",
                remedy=f"create it under Admin > Connections with the type {self.hook_name!r}, or name "
                "the table",
            ) from error
        if connection.conn_type != self.conn_type:
            raise ConfigurationError(
                self.conn_name_attr,
                f"connection {self.table_conn_id!r} has the type {connection.conn_type!r}",
                remedy=f"use a connection of the type {self.conn_type!r}",
            )
        return connection

    @cached_property
    def _reader(self) -> HudiTable:
        return open_table(self.table, self.storage_conn_id, timeout_s=self.timeout_s)


def open_table(
    table: str, storage_conn_id: str | None = None, *, timeout_s: float = DEFAULT_TIMEOUT_S
) -> HudiTable:
    """Return the reader of a table, with the credentials of an Airflow connection.

    :param table: base path of the table, absolute or a URL.
    :param storage_conn_id: Airflow connection of the storage, or ``None`` for the worker's own
        credentials.
    :param timeout_s: time-out of one request to the storage, in seconds.
    :raises ConfigurationError: if no installed provider has a file system for the storage.
    """
    file_system = storage_of(table, storage_conn_id)
    return HudiTable(table, file_system, timeout_s=timeout_s)


def storage_of(table: str, storage_conn_id: str | None) -> Any:
    """Return the fsspec file system of an Airflow connection; ``None`` without one.

    :param table: base path of the table, or another path on its storage.
    :raises ConfigurationError: if no installed provider has a file system for the storage.
    """
    from airflow.sdk.io.fs import get_fs

    if not storage_conn_id:
        return None
    scheme, _ = parse_table_path(table)
    try:
        file_system = over_http(get_fs(fsspec_scheme(scheme), storage_conn_id, {}))
    except (ValueError, ImportError) as error:
        provider = _PROVIDERS.get(fsspec_scheme(scheme), "Airflow's provider for that storage")
        raise ConfigurationError(
            "storage_conn_id",
            f"connection {storage_conn_id!r} cannot be used for {scheme} tables: {error}",
            remedy=f"install {provider}, or correct the connection",
        ) from error
    if is_s3(file_system):
        _read_times_faster(file_system)
    return file_system


def _read_times_faster(file_system: Any) -> None:
    """Have a file system of s3fs read times without dateutil.

    That takes four fifths of the time for which botocore parses a listing.

    :param file_system: with a session of its own.
    """
    parsers = file_system.session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=_s3_time)


def _s3_time(value: str | float) -> datetime:
    """Return a time of S3: in a listing by ISO 8601, in a header as mail has it."""
    if not isinstance(value, str):
        return datetime.fromtimestamp(value, UTC)
    return datetime.fromisoformat(value) if value[10:11] == "T" else parsedate_to_datetime(value)
