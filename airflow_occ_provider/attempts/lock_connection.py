"""What an attempt needs of the lock connection: options, lock and queue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from airflow_occ_provider.attempts.hudi_locks import HudiLock, MetastoreLock, ZookeeperLock
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import METASTORE_DATABASE, ZOOKEEPER_BASE_PATH
from airflow_occ_provider.hudi.writer.storage_lock import (
    FILE_LOCK_PATH,
    FILE_LOCK_PROVIDER,
    file_lock_store,
)
from airflow_occ_provider.leases.backend import LeaseBackend
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.metastore.backend import MetastoreLeases
from airflow_occ_provider.leases.zookeeper.backend import ZookeeperLeases, refuse_overlap

if TYPE_CHECKING:
    from airflow_occ_provider.leases.commit_lock import CommitLock
    from airflow_occ_provider.leases.queue import Queue


class LockConnection(Protocol):
    """The lock service as a connection describes it."""

    @property
    def lock_conn_id(self) -> str:
        """Its name, for messages."""

    def validate(self) -> None:
        """Refuse a connection whose fields are wrong; asks no service.

        :raises ConfigurationError: with the first field.
        """

    def options(self, table: str) -> dict[str, str]:
        """Return Hudi's lock options for the table at a base path."""

    def commit_lock(self, table: str, key: str) -> CommitLock | None:
        """Return Hudi's lock of a table, for reading; ``None`` if it is not visible."""

    def leases(self) -> Queue:
        """Return the queue."""

    def terms(self) -> Terms:
        """Return the TTLs of a lease."""


@dataclass(frozen=True, slots=True)
class PlainLocks:
    """A ``LockConnection`` by plain values.

    :param hudi_lock: Hudi's own lock.
    :param lease_backend: what keeps the leases.
    :param lock_conn_id: its name, for messages.
    :raises ConfigurationError: if Hudi's lock is where the leases are, or the service that keeps both
        would drop it.
    """

    hudi_lock: HudiLock
    lease_backend: LeaseBackend
    lock_conn_id: str = "locks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "lease_backend", beside(self.lease_backend, self.hudi_lock))

    def validate(self) -> None:
        """Refuse wrong values of the leases; Hudi's lock depends on the table."""
        self.lease_backend.validate()

    def options(self, table: str) -> dict[str, str]:
        """Return Hudi's lock options for the table at a base path."""
        return lock_options(self.hudi_lock, table)

    def commit_lock(self, table: str, key: str) -> CommitLock | None:
        """Open a view of Hudi's own lock of a table."""
        return self.hudi_lock.view(table, key)

    def leases(self) -> Queue:
        """Open the queue of leases, which the caller closes."""
        return self.lease_backend.open()

    def terms(self) -> Terms:
        """Return the TTLs of the leases."""
        return self.lease_backend.terms()


def beside(leases: LeaseBackend, lock: HudiLock) -> LeaseBackend:
    """Return leases that know Hudi's lock, so that neither is in the other's way.

    :raises ConfigurationError: if the lock is where the leases are.
    """
    if isinstance(leases, ZookeeperLeases):
        if isinstance(lock, ZookeeperLock):
            return replace(leases, locks_root=lock.base_path)
        refuse_overlap(leases.root, lock.options("/check").get(ZOOKEEPER_BASE_PATH, ""))
    elif isinstance(leases, MetastoreLeases):
        database = lock.options("/check").get(METASTORE_DATABASE, "")
        heartbeat_ms = lock.heartbeat_ms if isinstance(lock, MetastoreLock) else 0
        return replace(leases, locks_database=database, heartbeat_ms=heartbeat_ms)
    return leases


def lock_options(hudi_lock: HudiLock, table: str) -> dict[str, str]:
    """Return Hudi's lock options for a table.

    :raises ConfigurationError: if they name a lock that its storage cannot have.
    """
    options = hudi_lock.options(table)
    if place := file_lock_store(options, table):
        raise ConfigurationError(
            "hudi_lock_options",
            f"{FILE_LOCK_PROVIDER} cannot lock in an object store: {place}",
            remedy=f"name StorageBasedLockProvider, leave the field empty, or enter a path on HDFS or a "
            f"local disk as {FILE_LOCK_PATH}",
        )
    return options
