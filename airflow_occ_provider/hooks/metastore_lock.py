"""The connection ``hudi_metastore_lock``: lock and leases in a metastore."""

from __future__ import annotations

import posixpath
import re
import uuid
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING

from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, Terms
from airflow_occ_provider.hudi.writer.options import METASTORE_DATABASE, metastore_lock_options
from airflow_occ_provider.storage.address import canonical_table

if TYPE_CHECKING:
    from airflow_occ_provider.leases.metastore.client import Access
    from airflow_occ_provider.leases.metastore.commit_lock import MetastoreCommitLock
    from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
    from airflow_occ_provider.leases.metastore.service import MetastoreLeases

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

    def terms(self) -> Terms:
        """Return the TTLs: the metastore's lock time-out, or a shorter given one.

        :raises ConfigurationError: if a field of the connection is wrong.
        :raises LockUnreachableError: if the metastore does not answer in time.
        """
        with closing(self._locks()) as locks:
            timeout_ms = self._timeout_ms(locks)
        return Terms(timeout_ms, timeout_ms)

    def leases(self) -> MetastoreLeases:
        """Open the queue of leases; the caller closes it.

        :raises ConfigurationError: if a field of the connection is missing, wrong or rejected.
        :raises LockUnreachableError: if the metastore does not answer in time.
        """
        poll_s, locks = self._poll_s, self._locks()
        from airflow_occ_provider.leases.metastore.service import MetastoreLeases

        return MetastoreLeases(locks, self._timeout_ms(locks), poll_s=poll_s)

    def check(self) -> str:
        """Take and release a test lock; return a summary.

        :raises ConfigurationError: if a field of the connection is missing, wrong or rejected.
        :raises LockUnreachableError: if the metastore does not answer each call within the connection
            time-out, at most 10 seconds.
        """
        self._own_lock("/check")
        _ = self._given_timeout_s, self._poll_s
        with closing(self._locks()) as locks:
            from airflow_occ_provider.leases.metastore.locks import Part

            self._refuse_long_interval(self._timeout_ms(locks))
            lock_id, is_granted = locks.lock(
                [Part(f"check_{uuid.uuid4().hex}", "", exclusive=True)], "check", "check"
            )
            locks.unlock(lock_id)
            granted = "granted and released" if is_granted else "requested and released"
            expiry = self._expiry(locks)
        return f"Hive metastore at {self._uris}: lock {lock_id} was {granted}. {expiry}"

    def _expiry(self, locks: MetastoreLocks) -> str:
        timeout_s = self._timeout_ms(locks) / 1000
        if locks.setting(_REAPER) == "false":
            return f"Warning: {_REAPER} is false: {_NEVER_EXPIRES}"
        if "Dummy" in locks.setting("hive.txn.manager") or (
            locks.setting("hive.support.concurrency") == "false"
        ):
            return f"Warning: it has no transaction manager, which Hive 2 needs: {_NEVER_EXPIRES}"
        interval = locks.setting(_REAPER_INTERVAL) or "unknown"
        return f"It drops a lock {timeout_s:g} s after its last heartbeat; check interval: {interval}."

    def _own_lock(self, table: str) -> dict[str, str]:
        fields = self._fields
        return metastore_lock_options(
            self._uris,
            self._database,
            self._table(table),
            wait_time_ms=fields.number("wait_time_ms", 60_000, at_least=1),
            heartbeat_interval_ms=self._heartbeat_ms,
            num_retries=fields.number("num_retries", 50),
        )

    def _view(self, table: str, table_name: str) -> MetastoreCommitLock:  # noqa: ARG002
        self._refuse_without_client()
        from airflow_occ_provider.leases.metastore.commit_lock import MetastoreCommitLock

        return MetastoreCommitLock(self._access, self._database, self._table(table))

    def _locks(self) -> MetastoreLocks:
        self._refuse_without_client()
        from airflow_occ_provider.leases.metastore.client import MetastoreClient
        from airflow_occ_provider.leases.metastore.locks import MetastoreLocks

        database = self._lease_database
        return MetastoreLocks(MetastoreClient(self._access), database)

    def _refuse_without_client(self) -> None:
        try:
            import_module("airflow_occ_provider.leases.metastore.locks")
        except ImportError as error:
            raise self._fields.error(
                "type",
                f"the client of the Hive metastore is not installed ({error})",
                "pip install 'airflow-occ-provider[hive]'",
            ) from error

    def _refuse_long_interval(self, timeout_ms: int) -> None:
        """Refuse a heartbeat interval that is too long for the lock time-out."""
        if not self._other_lock and self._heartbeat_ms * 2 > timeout_ms:
            raise self._fields.error(
                "heartbeat_interval_ms",
                f"{self._heartbeat_ms} ms, but the metastore drops a lock {timeout_ms / 1000:g} s after "
                "its last heartbeat; a writer would lose Hudi's lock while it holds it",
                f"enter a third of that, {timeout_ms // 3}",
            )

    def _timeout_ms(self, locks: MetastoreLocks) -> int:
        match = re.fullmatch(r"(\d+)(\w*)", locks.setting(_TIMEOUT))
        servers_ms = int(match[1]) * _UNITS_MS.get(match[2], 0) if match else 0
        # The server drops a lock after its own time-out, whatever this field says.
        known = (self._given_timeout_s * 1000, servers_ms)
        return min((one for one in known if one), default=_DEFAULT_TIMEOUT_MS)

    @property
    def _heartbeat_ms(self) -> int:
        return self._fields.number("heartbeat_interval_ms", 60_000, at_least=1)

    @property
    def _given_timeout_s(self) -> int:
        return self._fields.number("lock_timeout_s", 0)

    @property
    def _poll_s(self) -> int:
        return self._fields.number("lease_poll_s", 1, at_least=1)

    @property
    def _uris(self) -> str:
        connection = self._connection
        host = (connection.host or "").strip()
        if not host:
            raise self._fields.error(
                "uris", "is empty", "enter thrift://host:port addresses, separated by commas"
            )
        named = [one.strip() for one in host.split(",") if one.strip()]
        if connection.port and len(named) == 1 and not re.search(r":\d+$", named[0]):
            named = [f"{named[0]}:{connection.port}"]
        return ",".join(one if "://" in one else f"thrift://{one}" for one in named)

    @property
    def _access(self) -> Access:
        from airflow_occ_provider.leases.metastore.client import Access, Kerberos

        fields = self._fields
        service = fields.text("kerberos_service", "hive")
        kerberos = Kerberos(service) if fields.flag("kerberos") else None
        return Access(self._uris, self._answer_timeout_s, kerberos)

    @property
    def _database(self) -> str:
        return self._name("database", "default")

    @property
    def _lease_database(self) -> str:
        name = self._name("lease_database", "airflow_occ_leases")
        hudis = self._other_lock.get(METASTORE_DATABASE) or self._database
        if name == hudis:
            raise self._fields.error(
                "lease_database",
                f"{name!r} is where Hudi locks: at its commit a job would wait for its own lease",
                "enter another name, such as airflow_occ_leases",
            )
        return name

    def _table(self, table: str) -> str:
        folder = posixpath.basename(canonical_table(table))
        default = re.sub(r"[^a-z0-9_]", "_", folder.lower())[:128]
        return self._name("table", default)

    def _name(self, field: str, default: str) -> str:
        name = self._fields.text(field, default)
        if not _NAME.fullmatch(name):
            raise self._fields.error(
                field,
                f"{name!r} is not a valid name in Hive",
                "enter at most 128 lower-case letters, digits and underscores",
            )
        return name
