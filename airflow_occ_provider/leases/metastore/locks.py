"""The lock calls of a Hive metastore."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymetastore.hive_metastore.ttypes import (
    ConfigValSecurityException,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    NoSuchLockException,
    ShowLocksRequest,
    UnlockRequest,
)

from airflow_occ_provider.leases.commit_lock import LockEntry
from airflow_occ_provider.leases.metastore.backend import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient

_USER = "airflow_occ"


class LockRow(NamedTuple):
    """One component of a lock as the metastore shows it.

    :param lock_id: greater than the ids of all locks requested before.
    :param acquired: whether it was granted when its owner last asked.
    :param since_ms: epoch milliseconds by the metastore's clock of its last heartbeat.
    :param acquired_ms: when it was granted; ``None`` for a waiter.
    """

    lock_id: int
    table: str
    partition: str
    acquired: bool
    owner: str
    since_ms: int
    acquired_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MetastoreLocks:
    """The locks of one database, which need not exist; they expire without heartbeats.

    After a ``LockUnreachableError`` the call may or may not have been carried out.
    """

    client: MetastoreClient
    database: str

    def lock(self, table: str, partitions: Iterable[str]) -> int:
        """Request a shared lock on some partitions of a table and return its id.

        Its id and its components become visible in one transaction, after those of all locks with a
        lower id.
        """
        components = [
            LockComponent(
                type=LockType.SHARED_READ,
                level=LockLevel.PARTITION,
                dbname=self.database,
                tablename=table,
                partitionname=partition,
            )
            for partition in partitions
        ]
        request = LockRequest(component=components, user=_USER, hostname="airflow", agentInfo=_USER)
        return int(self.client.call("lock", request, repeat=False).lockid)

    def unlock(self, lock_id: int) -> None:
        """Release a lock, if it exists."""
        with suppress(NoSuchLockException):
            self.client.call("unlock", UnlockRequest(lockid=lock_id), answers=(NoSuchLockException,))

    def rows(self, table: str | None = None) -> list[LockRow]:
        """Return all components of all locks, or only those on one table.

        They include every change answered before the call.
        """
        request = ShowLocksRequest(dbname=self.database, tablename=table)
        return [_row(shown) for shown in self.client.call("show_locks", request).locks or ()]

    def setting(self, name: str) -> str:
        """Return a setting of the metastore; empty if it is unknown or hidden."""
        hidden = ConfigValSecurityException
        with suppress(hidden):
            return str(self.client.call("get_config_value", name, "", answers=(hidden,)) or "")
        return ""

    def close(self) -> None:
        """Close the connection."""
        self.client.close()


def _row(shown: Any) -> LockRow:
    return LockRow(
        shown.lockid,
        shown.tablename or "",
        shown.partname or "",
        shown.state == LockState.ACQUIRED,
        f"{shown.user}@{shown.hostname}",
        shown.lastheartbeat or 0,
        shown.acquiredat or None,
    )


class MetastoreCommitLock:
    """The ``CommitLock`` of Hudi's metastore lock provider.

    :raises LockUnreachableError: if the metastore does not answer in time.
    """

    def __init__(self, access: MetastoreAccess, database: str, table: str) -> None:
        self.path = f"{database}.{table}"
        self._table = table
        self._locks = MetastoreLocks(MetastoreClient(access), database)

    def entries(self) -> tuple[LockEntry, ...]:
        """Return the holder and the waiters, the holder first."""
        rows = sorted(self._locks.rows(self._table), key=lambda row: (not row.acquired, row.lock_id))
        return tuple(LockEntry(row.lock_id, row.owner, row.acquired_ms, row.acquired) for row in rows)

    def times_requested(self) -> None:
        """Return ``None``: a metastore does not count requests."""

    def counted_since_ms(self) -> None:
        """Return ``None``: a metastore does not count requests."""

    def close(self) -> None:
        """Close the connection."""
        self._locks.close()
