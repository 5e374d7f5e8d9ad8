"""The connection ``hudi_metastore_lock``: lock and leases in a metastore."""

from __future__ import annotations

import posixpath
import re
import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_occ_provider.errors import install_extra
from airflow_occ_provider.hooks.hudi_lock import Fields, HudiLock, HudiLockHook, answer_timeout_s, ttl_s
from airflow_occ_provider.hudi.writer.options import METASTORE_DATABASE, metastore_lock_options
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.storage.address import canonical_table

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.leases.metastore.client import Access
    from airflow_occ_provider.leases.metastore.locks import MetastoreCommitLock, MetastoreLocks
    from airflow_occ_provider.leases.queue import Queue

_NAME = re.compile(r"[a-z0-9_]{1,128}")
_TIMEOUT = "hive.txn.timeout"
_DEFAULT_TIMEOUT_MS = 300_000
_REAPER, _REAPER_INTERVAL = "hive.compactor.initiator.on", "hive.timedout.txn.reaper.interval"
# The time units of HiveConf that make sense for a lock time-out.
_UNITS_MS = {"": 1000, "ms": 1, "msec": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000}
_UNITS_MS |= {"h": 3_600_000, "hour": 3_600_000}
_NEVER_EXPIRES = (
    "the lock of a killed writer would never expire. Set hive.compactor.initiator.on=true; Hive 2 "
    "also needs hive.txn.manager=org.apache.hadoop.hive.ql.lockmgr.DbTxnManager and "
    "hive.support.concurrency=true."
)


class HudiMetastoreLockHook(HudiLockHook):
    """The hook of a ``hudi_metastore_lock`` connection.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_metastore_lock"
    hook_name = "Hudi lock (Hive metastore)"

    @cached_property
    def service(self) -> Metastore:
        """The metastore that the connection names."""
        return Metastore(self._connection, self._fields)

    def _service_lock(self) -> MetastoreLock:
        return MetastoreLock(self.service)

    def _lease_backend(self, lock: HudiLock) -> MetastoreBackend:
        return MetastoreBackend(self.service, lock)


@dataclass(frozen=True, slots=True)
class Metastore:
    """The Hive metastore of a connection.

    :param connection: the Airflow connection.
    :param fields: its extra fields.
    """

    connection: Connection
    fields: Fields

    @property
    def uris(self) -> str:
        """Its Thrift addresses, separated by commas."""
        host, port = (self.connection.host or "").strip(), self.connection.port
        if not host:
            raise self.fields.error(
                "uris", "is empty", "enter thrift://host:port addresses, separated by commas"
            )
        named = [one.strip() for one in host.split(",") if one.strip()]
        if port and len(named) == 1 and not re.search(r":\d+$", named[0]):
            named = [f"{named[0]}:{port}"]
        return ",".join(one if "://" in one else f"thrift://{one}" for one in named)

    @property
    def access(self) -> Access:
        """How a client reaches it."""
        self._refuse_without_client()
        from airflow_occ_provider.leases.metastore.client import Access, Kerberos

        service = self.fields.text("kerberos_service", "hive")
        kerberos = Kerberos(service) if self.fields.flag("kerberos") else None
        return Access(self.uris, answer_timeout_s(self.fields), kerberos)

    def name(self, field: str, default: str) -> str:
        """Return a field as a name in Hive.

        :raises ConfigurationError: if it is not a valid one.
        """
        name = self.fields.text(field, default)
        if not _NAME.fullmatch(name):
            raise self.fields.error(
                field,
                f"{name!r} is not a valid name in Hive",
                "enter at most 128 lower-case letters, digits and underscores",
            )
        return name

    def _refuse_without_client(self) -> None:
        try:
            import_module("airflow_occ_provider.leases.metastore.locks")
        except ImportError as error:
            raise self.fields.error(
                "type",
                f"the client of the Hive metastore is not installed ({error})",
                install_extra("hive"),
            ) from error


@dataclass(frozen=True, slots=True)
class MetastoreLock:
    """Hudi's lock in a metastore.

    :param service: the metastore.
    """

    service: Metastore

    @property
    def database(self) -> str:
        """The database in whose name Hudi locks."""
        return self.service.name("database", "default")

    @property
    def heartbeat_ms(self) -> int:
        """Milliseconds between two heartbeats of Hudi's lock."""
        return self.service.fields.number("heartbeat_interval_ms", 60_000, at_least=1)

    def options(self, table: str) -> dict[str, str]:
        """Return the options of Hudi's ``HiveMetastoreBasedLockProvider``."""
        fields = self.service.fields
        return metastore_lock_options(
            self.service.uris,
            self.database,
            self._table(table),
            wait_time_ms=fields.number("wait_time_ms", 60_000, at_least=1),
            heartbeat_interval_ms=self.heartbeat_ms,
            num_retries=fields.number("num_retries", 50),
        )

    def view(self, table: str, table_name: str) -> MetastoreCommitLock:  # noqa: ARG002
        """Open a view of the lock."""
        access = self.service.access
        from airflow_occ_provider.leases.metastore.locks import MetastoreCommitLock

        return MetastoreCommitLock(access, self.database, self._table(table))

    def refuse_long_interval(self, timeout_ms: int) -> None:
        """Refuse a heartbeat interval that is too long for the metastore's lock time-out.

        :raises ConfigurationError: then.
        """
        if self.heartbeat_ms * 2 > timeout_ms:
            raise self.service.fields.error(
                "heartbeat_interval_ms",
                f"{self.heartbeat_ms} ms, but the metastore drops a lock {timeout_ms / 1000:g} s after "
                "its last heartbeat; a writer would lose Hudi's lock while it holds it",
                f"enter a third of that, {timeout_ms // 3}",
            )

    def _table(self, table: str) -> str:
        folder = posixpath.basename(canonical_table(table))
        return self.service.name("table", re.sub(r"[^a-z0-9_]", "_", folder.lower())[:128])


@dataclass(frozen=True, slots=True)
class MetastoreBackend:
    """The leases in a metastore.

    :param service: the metastore.
    :param lock: Hudi's own lock, whose database the leases must not use.
    """

    service: Metastore
    lock: HudiLock

    @property
    def database(self) -> str:
        """The database in whose name the queue's changes are locks.

        :raises ConfigurationError: if it is the one of Hudi's own lock.
        """
        name = self.service.name("lease_database", "airflow_occ_leases")
        if name == self.lock.options("/check").get(METASTORE_DATABASE):
            raise self.service.fields.error(
                "lease_database",
                f"{name!r} is where Hudi locks, and a queue needs a database of its own",
                "enter another name, such as airflow_occ_leases",
            )
        return name

    def terms(self) -> Terms:
        """Return the TTLs: nine tenths of the lock time-out, or of a shorter one."""
        with closing(self._locks()) as locks:
            timeout_ms = self._safe_timeout_ms(locks)
        from airflow_occ_provider.leases.metastore.lock_log import REFRESHES_PER_LIFETIME

        ttl_ms = timeout_ms - timeout_ms // REFRESHES_PER_LIFETIME
        return Terms(ttl_ms, ttl_ms)

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        poll_s, locks = self._poll_s, self._locks()
        from airflow_occ_provider.leases.metastore.lock_log import MetastoreStore
        from airflow_occ_provider.leases.queue import Queue

        return Queue(MetastoreStore(locks, self._timeout_ms(locks) / 1000, poll_s))

    def validate(self) -> None:
        """Check the fields, and that the client is installed."""
        _ = self._given_timeout_s, self._poll_s, self.database
        _ = self.service.access.addresses

    def test(self) -> str:
        """Take and release a test lock; return a summary."""
        with closing(self._locks()) as locks:
            timeout_ms = self._safe_timeout_ms(locks)
            lock_id = locks.lock(f"check_{uuid.uuid4().hex}", ["check=1"])
            locks.unlock(lock_id)
            ending = expiry(locks, timeout_ms)
        return f"Hive metastore at {self.service.uris}: lock {lock_id} was taken and released. {ending}"

    def _locks(self) -> MetastoreLocks:
        access, database = self.service.access, self.database
        from airflow_occ_provider.leases.metastore.client import MetastoreClient
        from airflow_occ_provider.leases.metastore.locks import MetastoreLocks

        return MetastoreLocks(MetastoreClient(access), database)

    def _timeout_ms(self, locks: MetastoreLocks) -> int:
        match = re.fullmatch(r"(\d+)(\w*)", locks.setting(_TIMEOUT))
        servers_ms = int(match[1]) * _UNITS_MS.get(match[2], 0) if match else 0
        # The server drops a lock after its own time-out, whatever this field says.
        known = (self._given_timeout_s * 1000, servers_ms)
        return min((one for one in known if one), default=_DEFAULT_TIMEOUT_MS)

    def _safe_timeout_ms(self, locks: MetastoreLocks) -> int:
        """Return the time-out; refuse one that Hudi's own heartbeats do not keep."""
        timeout_ms = self._timeout_ms(locks)
        if isinstance(self.lock, MetastoreLock):
            self.lock.refuse_long_interval(timeout_ms)
        return timeout_ms

    @property
    def _given_timeout_s(self) -> int:
        return ttl_s(self.service.fields, "lock_timeout_s", 0)

    @property
    def _poll_s(self) -> int:
        return self.service.fields.number("lease_poll_s", 1, at_least=1)


def expiry(locks: MetastoreLocks, timeout_ms: int) -> str:
    """Return a sentence on when a metastore drops the lock of a dead process."""
    if locks.setting(_REAPER) == "false":
        return f"Warning: {_REAPER} is false: {_NEVER_EXPIRES}"
    if "Dummy" in locks.setting("hive.txn.manager") or (
        locks.setting("hive.support.concurrency") == "false"
    ):
        return f"Warning: it has no transaction manager, which Hive 2 needs: {_NEVER_EXPIRES}"
    interval = locks.setting(_REAPER_INTERVAL) or "unknown"
    return (
        f"It drops a lock {timeout_ms / 1000:g} s after its last heartbeat; check interval: {interval}."
    )
