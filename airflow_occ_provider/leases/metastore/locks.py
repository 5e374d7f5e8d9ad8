"""The lock calls of a Hive metastore."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pymetastore.hive_metastore.ttypes import (
    CheckLockRequest,
    ConfigValSecurityException,
    HeartbeatRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    NoSuchLockException,
    ShowLocksRequest,
    UnlockRequest,
)

from airflow_occ_provider.leases.metastore.client import MetastoreClient

_GONE = (NoSuchLockException,)


class Part(NamedTuple):
    """One component of a lock; of a whole table if the partition is empty."""

    table: str
    partition: str
    exclusive: bool


class Row(NamedTuple):
    """One component of a lock as the metastore shows it.

    :param lock_id: greater than the ids of all locks requested before.
    :param acquired: whether it was granted when its owner last asked.
    :param since_ms: epoch milliseconds by the metastore's clock of its last heartbeat.
    :param acquired_ms: when it was granted; ``None`` for a waiter.
    """

    lock_id: int
    part: Part
    acquired: bool
    agent: str
    owner: str
    since_ms: int
    acquired_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MetastoreLocks:
    """Locks that are granted first come, first served, and expire without heartbeats.

    Their database need not exist. After a ``LockUnreachableError`` the call may or may not have been
    carried out.
    """

    client: MetastoreClient
    database: str

    def lock(self, parts: Iterable[Part], user: str, agent: str) -> tuple[int, bool]:
        """Request a lock on all parts; return its id and whether it is granted."""
        components = [self._component(part) for part in parts]
        asked = LockRequest(component=components, user=user, hostname="airflow", agentInfo=agent)
        answer = self.client.call("lock", asked, repeat=False)
        return answer.lockid, answer.state == LockState.ACQUIRED

    def check(self, lock_id: int) -> bool:
        """Return whether a lock is granted now; this counts as a heartbeat.

        :raises NoSuchLockException: if it was released, or the metastore dropped it.
        """
        answer = self.client.call("check_lock", CheckLockRequest(lockid=lock_id), answers=_GONE)
        return bool(answer.state == LockState.ACQUIRED)

    def heartbeat(self, lock_id: int) -> None:
        """Renew a lock.

        :raises NoSuchLockException: if it was released, or the metastore dropped it.
        """
        self.client.call("heartbeat", HeartbeatRequest(lockid=lock_id), answers=_GONE)

    def unlock(self, lock_id: int) -> None:
        """Release a lock, if it exists."""
        with suppress(NoSuchLockException):
            self.client.call("unlock", UnlockRequest(lockid=lock_id), answers=_GONE)

    def rows(self, table: str | None = None) -> list[Row]:
        """Return all parts of all locks, or only those on one table.

        They include every change answered before the call.
        """
        asked = ShowLocksRequest(dbname=self.database, tablename=table)
        return [_row(one) for one in self.client.call("show_locks", asked).locks or ()]

    def setting(self, name: str) -> str:
        """Return a setting of the metastore; empty if it is unknown or hidden."""
        hidden = ConfigValSecurityException
        with suppress(hidden):
            return str(self.client.call("get_config_value", name, "", answers=(hidden,)) or "")
        return ""

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def _component(self, part: Part) -> LockComponent:
        return LockComponent(
            type=LockType.EXCLUSIVE if part.exclusive else LockType.SHARED_READ,
            level=LockLevel.PARTITION if part.partition else LockLevel.TABLE,
            dbname=self.database,
            tablename=part.table,
            partitionname=part.partition or None,
        )


def _row(one: Any) -> Row:
    part = Part(one.tablename or "", one.partname or "", one.type == LockType.EXCLUSIVE)
    return Row(
        one.lockid,
        part,
        one.state == LockState.ACQUIRED,
        one.agentInfo or "",
        f"{one.user}@{one.hostname}",
        one.lastheartbeat or 0,
        one.acquiredat or None,
    )
