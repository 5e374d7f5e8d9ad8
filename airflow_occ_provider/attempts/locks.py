"""Hudi's own locks, and what an attempt needs of its lock connection."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import (
    FILE_LOCK_PATH,
    LOCK_PROVIDER,
    contradictions,
    dynamodb_lock_options,
    metastore_lock_options,
    zookeeper_lock_options,
)
from airflow_occ_provider.hudi.writer.storage_lock import (
    FILE_LOCK_PROVIDER,
    FILE_LOCK_SCHEMES,
    OBJECT_LOCK_SCHEMES,
    RETRY_S,
    file_lock_options,
    file_lock_store,
    storage_lock_options,
)
from airflow_occ_provider.leases.backend import HudiLock, LeaseBackend
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.backend import require_client
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.storage.address import canonical_table, parse_table_path

if TYPE_CHECKING:
    from airflow_occ_provider.leases.commit_lock import CommitLock
    from airflow_occ_provider.leases.metastore.lock_log import MetastoreCommitLock
    from airflow_occ_provider.leases.queue import Queue
    from airflow_occ_provider.leases.zookeeper.store import ZookeeperCommitLock


_RETRIES_A_MINUTE = 60 // RETRY_S


@dataclass(frozen=True, slots=True)
class GivenLock:
    """A lock of Hudi in a service that only its options name.

    :param lock_options: Hudi's options.
    :raises ConfigurationError: if they name no provider, or one of them removes the protection.
    """

    lock_options: Mapping[str, str]

    def __post_init__(self) -> None:
        if LOCK_PROVIDER not in self.lock_options:
            raise ConfigurationError(
                "hudi_lock_options",
                f"they do not name {LOCK_PROVIDER}",
                remedy="add the provider's class, or leave it out for Hudi's lock in the same service",
            )
        for wrong in contradictions(self.lock_options.items(), "hudi_lock_options"):
            if wrong.key != LOCK_PROVIDER:
                raise ConfigurationError(wrong.source, f"{wrong.key}={wrong.value}", remedy=wrong.remedy)

    def options(self, _table: str, /) -> dict[str, str]:
        """Return the given options."""
        return dict(self.lock_options)

    def view(self, _table: str, _table_name: str, /) -> None:
        """Return ``None``: the service is unknown."""
        return


@dataclass(frozen=True, slots=True)
class ZookeeperLock:
    """Hudi's lock in ZooKeeper.

    :param base_path: the node under which each table has its lock.
    """

    access: ZookeeperAccess
    base_path: str = "/hudi/locks"
    session_timeout_ms: int = 60_000
    connection_timeout_ms: int = 15_000
    wait_time_ms: int = 60_000
    num_retries: int = 50

    def options(self, _table: str, /) -> dict[str, str]:
        """Return the options of Hudi's ``ZookeeperBasedLockProvider``."""
        return zookeeper_lock_options(
            self.access.hosts,
            self.base_path,
            session_timeout_ms=self.session_timeout_ms,
            connection_timeout_ms=self.connection_timeout_ms,
            wait_time_ms=self.wait_time_ms,
            num_retries=self.num_retries,
        )

    def view(self, _table: str, table_name: str, /) -> ZookeeperCommitLock:
        """Open a view of the lock."""
        from airflow_occ_provider.leases.zookeeper.client import shared_session
        from airflow_occ_provider.leases.zookeeper.store import ZookeeperCommitLock

        return ZookeeperCommitLock(self.access, self.base_path, table_name, shared_session(self.access))


@dataclass(frozen=True, slots=True)
class MetastoreLock:
    """Hudi's lock in a Hive metastore.

    :param database: in whose name Hudi locks.
    :param table: in whose name it locks; empty for the name of each table's folder.
    """

    access: MetastoreAccess
    database: str = "default"
    table: str = ""
    wait_time_ms: int = 60_000
    heartbeat_ms: int = 60_000
    num_retries: int = 50

    def options(self, table: str) -> dict[str, str]:
        """Return the options of Hudi's ``HiveMetastoreBasedLockProvider``."""
        return metastore_lock_options(
            self.access.uris,
            self.database,
            self._name_of(table),
            wait_time_ms=self.wait_time_ms,
            heartbeat_interval_ms=self.heartbeat_ms,
            num_retries=self.num_retries,
        )

    def view(self, table: str, _table_name: str, /) -> MetastoreCommitLock:
        """Open a view of the lock."""
        require_client()
        from airflow_occ_provider.leases.metastore.lock_log import MetastoreCommitLock

        return MetastoreCommitLock(self.access, self.database, self._name_of(table))

    def _name_of(self, table: str) -> str:
        folder = posixpath.basename(canonical_table(table))
        return self.table or re.sub(r"[^a-z0-9_]", "_", folder.lower())[:128]


@dataclass(frozen=True, slots=True)
class DynamoLock:
    """Hudi's lock in DynamoDB, by a class of ``hudi-aws-bundle``.

    :param region: of the table. Hudi's own default depends on each driver's environment.
    :param table: of DynamoDB, in which the locks are; not that of the leases.
    :param endpoint: URL of a server other than Amazon's; empty for Amazon's.
    """

    region: str
    table: str = "hudi_locks"
    endpoint: str = ""
    wait_time_ms: int = 60_000
    num_retries: int = 50

    def options(self, _table: str, /) -> dict[str, str]:
        """Return the options of Hudi's ``DynamoDBBasedLockProvider``."""
        return dynamodb_lock_options(
            self.table,
            self.region,
            self.endpoint,
            wait_time_ms=self.wait_time_ms,
            num_retries=self.num_retries,
        )

    def view(self, _table: str, _table_name: str, /) -> None:
        """Return ``None``: the lock is read with the driver's credentials alone."""
        return


@dataclass(frozen=True, slots=True)
class StorageLock:
    """Hudi's lock in the storage of each table, by the scheme of its path.

    :param wait_time_ms: for a lock in an object store.
    :param num_retries: of a writer that does not get the lock; ``None`` for what suits the storage.
    :param expire_min: minutes after which the lock of a killed writer expires, on a local disk or HDFS.
    """

    wait_time_ms: int = 60_000
    num_retries: int | None = None
    expire_min: int = 10

    def options(self, table: str) -> dict[str, str]:
        """Return the options of the lock provider of the table's scheme."""
        scheme, path = parse_table_path(table)
        if scheme in OBJECT_LOCK_SCHEMES:
            num_retries = 50 if self.num_retries is None else self.num_retries
            return storage_lock_options(wait_time_ms=self.wait_time_ms, num_retries=num_retries)
        if scheme in FILE_LOCK_SCHEMES:
            return self._file_options()
        raise ConfigurationError(
            "type",
            f"Hudi has no lock in the storage of {path}",
            remedy="use a connection of ZooKeeper or of a Hive metastore, or enter another lock of Hudi",
        )

    def view(self, _table: str, _table_name: str, /) -> None:
        """Return ``None``: the lock is a file of the table, read with its own credentials."""
        return

    def _file_options(self) -> dict[str, str]:
        retries_until_expiry = self.expire_min * _RETRIES_A_MINUTE
        num_retries = 2 * retries_until_expiry if self.num_retries is None else self.num_retries
        if num_retries <= retries_until_expiry:
            raise ConfigurationError(
                "num_retries",
                f"a writer gives up after {num_retries * RETRY_S} s and then deletes the lock of "
                f"another writer, while that of a killed one expires after {self.expire_min * 60} s",
                remedy=f"enter {retries_until_expiry + 1} or more, or leave it empty",
            )
        return file_lock_options(expire_min=self.expire_min, num_retries=num_retries)


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
        object.__setattr__(self, "lease_backend", self.lease_backend.beside(self.hudi_lock))

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
