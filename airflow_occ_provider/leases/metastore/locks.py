"""The lock calls of a Hive metastore, in values of ours."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

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


class LockGoneError(Exception):
    """There is no such lock: it was released, or the metastore dropped it."""


class Part(NamedTuple):
    """One name that a lock is on.

    :param table: of the lease database.
    :param partition: empty for the whole table.
    :param alone: exclusively, not beside others.
    """

    table: str
    partition: str
    alone: bool


class Row(NamedTuple):
    """One part of a lock as the metastore shows it.

    :param lock_id: greater than those of all locks asked for before.
    :param acquired: whether it was granted when its owner asked last.
    :param agent: what its owner calls itself.
    :param who: its owner for people.
    :param since_ms: epoch milliseconds by the metastore's clock of its last heartbeat.
    :param acquired_ms: when it was granted; ``None`` for who waits.
    """

    lock_id: int
    part: Part
    acquired: bool
    agent: str
    who: str
    since_ms: int
    acquired_ms: int | None = None


class Locks(Protocol):
    """Locks that are granted first come, first served, and dropped without heartbeats.

    ``LockUnreachableError`` means that the call may or may not have been carried out.
    """

    def lock(self, parts: Iterable[Part], who: str, agent: str) -> tuple[int, bool]:
        """Ask for a lock on all parts at once; return its id, and whether it is granted."""

    def check(self, lock_id: int) -> bool:
        """Whether a lock is granted now; counts as a heartbeat.

        :raises LockGoneError: if there is no such lock.
        """

    def heartbeat(self, lock_id: int) -> None:
        """Show that its owner lives.

        :raises LockGoneError: if there is no such lock.
        """

    def unlock(self, lock_id: int) -> None:
        """Release a lock, if it is there."""

    def rows(self, table: str | None = None) -> list[Row]:
        """Return all parts of all locks; every change that was answered before is seen.

        :param table: only those on this one.
        """

    def setting(self, name: str) -> str:
        """Return a setting of the metastore's own; empty where it does not tell."""

    def close(self) -> None:
        """End the connection."""


class MetastoreLocks:
    """The locks of one metastore database, which need not exist.

    :param client: of the metastore.
    :param database: its name.
    """

    def __init__(self, client: MetastoreClient, database: str) -> None:
        self._client = client
        self._database = database

    def lock(self, parts: Iterable[Part], who: str, agent: str) -> tuple[int, bool]:
        """Ask for a lock on all parts at once; return its id, and whether it is granted."""
        components = [self._component(part) for part in parts]
        asked = LockRequest(component=components, user=who, hostname="airflow", agentInfo=agent)
        answer = self._client.call("lock", asked, repeat=False)
        return answer.lockid, answer.state == LockState.ACQUIRED

    def check(self, lock_id: int) -> bool:
        """Whether a lock is granted now; counts as a heartbeat."""
        try:
            answer = self._client.call("check_lock", CheckLockRequest(lockid=lock_id), answers=_GONE)
        except NoSuchLockException as error:
            raise LockGoneError(lock_id) from error
        return bool(answer.state == LockState.ACQUIRED)

    def heartbeat(self, lock_id: int) -> None:
        """Show that its owner lives."""
        try:
            self._client.call("heartbeat", HeartbeatRequest(lockid=lock_id), answers=_GONE)
        except NoSuchLockException as error:
            raise LockGoneError(lock_id) from error

    def unlock(self, lock_id: int) -> None:
        """Release a lock, if it is there."""
        with suppress(NoSuchLockException):
            self._client.call("unlock", UnlockRequest(lockid=lock_id), answers=_GONE)

    def rows(self, table: str | None = None) -> list[Row]:
        """Return all parts of all locks; every change that was answered before is seen."""
        asked = ShowLocksRequest(dbname=self._database, tablename=table)
        return [_row(one) for one in self._client.call("show_locks", asked).locks or ()]

    def setting(self, name: str) -> str:
        """Return a setting of the metastore's own; empty where it does not tell."""
        try:
            told = self._client.call("get_config_value", name, "", answers=(ConfigValSecurityException,))
        except ConfigValSecurityException:
            return ""
        return str(told or "")

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _component(self, part: Part) -> LockComponent:
        return LockComponent(
            type=LockType.EXCLUSIVE if part.alone else LockType.SHARED_READ,
            level=LockLevel.PARTITION if part.partition else LockLevel.TABLE,
            dbname=self._database,
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
