"""Leases in a Hive metastore by plain values; the client is imported late."""

from __future__ import annotations

import re
import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_occ_provider.errors import ConfigurationError, install_extra
from airflow_occ_provider.hudi.writer.options import (
    LOCK_HEARTBEAT_MS,
    METASTORE_DATABASE,
    METASTORE_URIS,
)
from airflow_occ_provider.leases.backend import require_module
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.metastore.access import MetastoreAccess

if TYPE_CHECKING:
    from airflow_occ_provider.leases.backend import HudiLock
    from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks
    from airflow_occ_provider.leases.queue import Queue

LEASE_DATABASE = "airflow_occ_leases"
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


@dataclass(frozen=True, slots=True)
class MetastoreLeases:
    """Leases in a Hive metastore: a ``LeaseBackend``.

    :param database: in whose name the queue's changes are locks; it need not exist.
    :param timeout_s: seconds after which the metastore drops a lock, if it is less than its own setting
        says, or that is hidden; 0 if it is not.
    :param poll_s: the most seconds between two looks.
    :param locks_database: where Hudi's own locks are, if they are in a metastore.
    :param heartbeat_ms: milliseconds between two heartbeats of Hudi's own lock in this metastore; 0 if
        it is elsewhere.
    :raises ConfigurationError: if the two databases are one.
    """

    access: MetastoreAccess
    database: str = LEASE_DATABASE
    timeout_s: int = 0
    poll_s: int = 1
    locks_database: str = ""
    heartbeat_ms: int = 0

    def __post_init__(self) -> None:
        if self.database == self.locks_database:
            raise ConfigurationError(
                "lease_database",
                f"{self.database!r} is where Hudi locks, and a queue needs a database of its own",
                remedy=f"enter another name, such as {LEASE_DATABASE}",
            )

    def beside(self, lock: HudiLock) -> MetastoreLeases:
        """Return leases that know the database and the heartbeats of Hudi's lock."""
        options = lock.options("/check")
        is_here = self.access.is_same_service(options.get(METASTORE_URIS, ""))
        heartbeat_ms = options.get(LOCK_HEARTBEAT_MS, "") if is_here else ""
        return replace(
            self,
            locks_database=options.get(METASTORE_DATABASE, ""),
            heartbeat_ms=int(heartbeat_ms) if heartbeat_ms.isdecimal() else 0,
        )

    def terms(self) -> Terms:
        """Return the TTLs: nine tenths of the lock time-out, or of a shorter one."""
        with closing(self._locks()) as locks:
            timeout_ms = self._safe_timeout_ms(locks)
        from airflow_occ_provider.leases.metastore.lock_log import REFRESHES_PER_LIFETIME

        ttl_ms = timeout_ms - timeout_ms // REFRESHES_PER_LIFETIME
        return Terms(ttl_ms, ttl_ms)

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        locks = self._locks()
        from airflow_occ_provider.leases.metastore.lock_log import MetastoreStore
        from airflow_occ_provider.leases.queue import Queue

        return Queue(MetastoreStore(locks, self.lock_timeout_ms(locks) / 1000, self.poll_s))

    def validate(self) -> None:
        """Check the values, and that the client is installed."""
        require_client()
        _ = self.access.addresses

    def test(self) -> str:
        """Take and release a test lock; return a summary."""
        with closing(self._locks()) as locks:
            timeout_ms = self._safe_timeout_ms(locks)
            lock_id = locks.lock(f"check_{uuid.uuid4().hex}", ["check=1"])
            locks.unlock(lock_id)
            ending = expiry(locks, timeout_ms)
        return f"Hive metastore at {self.access.uris}: lock {lock_id} was taken and released. {ending}"

    def lock_timeout_ms(self, locks: MetastoreLocks) -> int:
        """Return the milliseconds after which the metastore drops a lock."""
        match = re.fullmatch(r"(\d+)(\w*)", locks.setting(_TIMEOUT))
        servers_ms = int(match[1]) * _UNITS_MS.get(match[2], 0) if match else 0
        # The server drops a lock after its own time-out, whatever this value says.
        timeouts_ms = (self.timeout_s * 1000, servers_ms)
        return min((timeout_ms for timeout_ms in timeouts_ms if timeout_ms), default=_DEFAULT_TIMEOUT_MS)

    def refuse_rare_heartbeats(self, timeout_ms: int) -> None:
        """Refuse heartbeats of Hudi's lock that are too rare for a lock time-out.

        :raises ConfigurationError: then.
        """
        if self.heartbeat_ms * 2 > timeout_ms:
            raise ConfigurationError(
                "heartbeat_interval_ms",
                f"{self.heartbeat_ms} ms, but the metastore drops a lock {timeout_ms / 1000:g} s after "
                "its last heartbeat; a writer would lose Hudi's lock while it holds it",
                remedy=f"enter a third of that, {timeout_ms // 3}",
            )

    def _safe_timeout_ms(self, locks: MetastoreLocks) -> int:
        """Return the time-out; refuse one that Hudi's own heartbeats do not keep."""
        timeout_ms = self.lock_timeout_ms(locks)
        self.refuse_rare_heartbeats(timeout_ms)
        return timeout_ms

    def _locks(self) -> MetastoreLocks:
        require_client()
        from airflow_occ_provider.leases.metastore.client import MetastoreClient
        from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks

        return MetastoreLocks(MetastoreClient(self.access), self.database)


def require_client() -> None:
    """Refuse to go on without the client of a metastore.

    :raises ConfigurationError: if it is not installed.
    """
    client = "airflow_occ_provider.leases.metastore.lock_log"
    require_module(client, "the Hive metastore", install_extra("hive"))


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
