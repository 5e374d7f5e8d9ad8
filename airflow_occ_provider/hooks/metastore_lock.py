"""The connection ``hudi_metastore_lock``: Hudi's commit lock, and our leases, in a Hive metastore."""

from __future__ import annotations

import posixpath
import re
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, Terms
from airflow_occ_provider.hudi.options import METASTORE_DATABASE, metastore_lock_options

if TYPE_CHECKING:
    from airflow_occ_provider.leases.metastore.client import Access
    from airflow_occ_provider.leases.metastore.commit_lock import MetastoreCommitLock
    from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
    from airflow_occ_provider.leases.metastore.service import MetastoreLeases

_NAME = re.compile(r"[a-z0-9_]{1,128}")
_TIMEOUT = "hive.txn.timeout"
_DEFAULT_TIMEOUT_MS = 300_000
_REAPER, _REAPER_INTERVAL = "hive.compactor.initiator.on", "hive.timedout.txn.reaper.interval"
# Of HiveConf's times, as far as a lock's time-out is given in them.
_UNITS_MS = {"": 1000, "ms": 1, "msec": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000}
_UNITS_MS |= {"h": 3_600_000, "hour": 3_600_000}


class HudiMetastoreLockHook(HudiLockHook):
    """Serve what a ``hudi_metastore_lock`` connection says: Hudi's lock options, and our leases.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_metastore_lock"
    hook_name = "Hudi lock (Hive metastore)"
    one_table_a_job = True

    def terms(self) -> Terms:
        """Return how long leases stand unrenewed: the metastore's lock time-out.

        :raises ConfigurationError: if a field of the connection is wrong.
        :raises LockUnreachableError: if the metastore does not answer in time.
        """
        with closing(self._locks()) as locks:
            timeout_ms = self._timeout_ms(locks)
        return Terms(timeout_ms, timeout_ms)

    def leases(self) -> MetastoreLeases:
        """Open the line of leases; the caller closes it.

        :raises ConfigurationError: if a field of the connection is missing or wrong, or refused.
        :raises LockUnreachableError: if the metastore does not answer in time.
        """
        from airflow_occ_provider.leases.metastore.service import MetastoreLeases

        poll_s, locks = self._poll_s, self._locks()
        return MetastoreLeases(locks, self._timeout_ms(locks), poll_s=poll_s)

    def check(self) -> str:
        """Take and release a lock of our own, and say what was found.

        :raises ConfigurationError: if a field of the connection is missing or wrong, or refused.
        :raises LockUnreachableError: if the metastore does not answer within the connection
            time-out, 10 seconds at most.
        """
        from airflow_occ_provider.leases.metastore.locks import Part

        self._metastore_options("/check")
        _ = self._given_timeout_s, self._poll_s
        with closing(self._locks()) as locks:
            lock_id, is_granted = locks.lock(
                [Part(f"check_{uuid.uuid4().hex}", "", alone=True)], "check", "check"
            )
            locks.unlock(lock_id)
            granted = "granted and released" if is_granted else "asked for and released"
            of_the_dead = self._of_the_dead(locks)
        return f"Hive metastore at {self._uris}: lock {lock_id} was {granted}. {of_the_dead}"

    def _of_the_dead(self, locks: MetastoreLocks) -> str:
        timeout_s = self._timeout_ms(locks) / 1000
        if locks.setting(_REAPER) == "false":
            return (
                f"Warning: it drops no locks of the dead ({_REAPER} is false), so that of a killed "
                "writer would stand for ever. Switch it on; Hive 2 needs hive.txn.manager=DbTxnManager "
                "and hive.support.concurrency=true beside it."
            )
        every = locks.setting(_REAPER_INTERVAL) or "its own interval"
        return f"It drops a lock {timeout_s:g} s after its last heartbeat, and looks every {every}."

    def _own_lock(self, table: str) -> dict[str, str]:
        return self._metastore_options(table)

    def _metastore_options(self, table: str) -> dict[str, str]:
        fields = self._fields
        return metastore_lock_options(
            self._uris,
            self._database,
            self._table(table),
            wait_time_ms=fields.number("wait_time_ms", 60_000, at_least=1),
            heartbeat_interval_ms=fields.number("heartbeat_interval_ms", 60_000, at_least=1),
            num_retries=fields.number("num_retries", 50),
        )

    def _view(self, table: str, table_name: str) -> MetastoreCommitLock:  # noqa: ARG002
        from airflow_occ_provider.leases.metastore.commit_lock import MetastoreCommitLock

        return MetastoreCommitLock(self._access, self._database, self._table(table))

    def _locks(self) -> MetastoreLocks:
        try:
            from airflow_occ_provider.leases.metastore.client import MetastoreClient
            from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
        except ImportError as error:
            raise self._fields.wrong(
                "type",
                f"the client of Hive's metastore is not installed here ({error})",
                "pip install 'airflow-occ-provider[hive]'",
            ) from error
        database = self._lease_database
        return MetastoreLocks(MetastoreClient(self._access), database)

    def _timeout_ms(self, locks: MetastoreLocks) -> int:
        if self._given_timeout_s:
            return self._given_timeout_s * 1000
        told = re.fullmatch(r"(\d+)(\w*)", locks.setting(_TIMEOUT))
        return (
            int(told[1]) * _UNITS_MS[told[2]] if told and told[2] in _UNITS_MS else _DEFAULT_TIMEOUT_MS
        )

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
            raise self._fields.wrong(
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
        access = Access(self._uris, self._answer_timeout_s, kerberos)
        _ = access.addresses
        return access

    @property
    def _database(self) -> str:
        return self._name("database", "default")

    @property
    def _lease_database(self) -> str:
        name = self._name("lease_database", "airflow_occ_leases")
        hudis = self._other_lock.get(METASTORE_DATABASE) or self._database
        if name == hudis:
            raise self._fields.wrong(
                "lease_database",
                f"{name!r} is where Hudi locks: a job would wait at commit for the lease that it holds "
                "itself",
                "enter a name of its own, such as airflow_occ_leases",
            )
        return name

    def _table(self, table: str) -> str:
        folder = posixpath.basename(table.rstrip("/"))
        default = re.sub(r"[^a-z0-9_]", "_", folder.lower())[:128]
        return self._name("table", default)

    def _name(self, field: str, default: str) -> str:
        name = self._fields.text(field, default)
        if not _NAME.fullmatch(name):
            raise self._fields.wrong(
                field,
                f"{name!r} is no name of Hive's",
                "enter small letters, digits and _, 128 at most",
            )
        return name
