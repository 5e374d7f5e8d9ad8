"""Hudi's own locks, which a writer takes to commit, by plain values."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import (
    LOCK_PROVIDER,
    contradictions,
    metastore_lock_options,
    zookeeper_lock_options,
)
from airflow_occ_provider.hudi.writer.storage_lock import (
    FILE_LOCK_SCHEMES,
    OBJECT_LOCK_SCHEMES,
    RETRY_S,
    file_lock_options,
    storage_lock_options,
)
from airflow_occ_provider.leases.metastore.backend import MetastoreAccess, require_client
from airflow_occ_provider.leases.zookeeper.backend import ZookeeperAccess
from airflow_occ_provider.storage.address import canonical_table, parse_table_path

if TYPE_CHECKING:
    from airflow_occ_provider.leases.commit_lock import CommitLock
    from airflow_occ_provider.leases.metastore.locks import MetastoreCommitLock
    from airflow_occ_provider.leases.zookeeper.commit_lock import ZookeeperCommitLock

_RETRIES_A_MINUTE = 60 // RETRY_S


class HudiLock(Protocol):
    """Hudi's own lock, which a writer takes to commit.

    Each method raises ``ConfigurationError`` if a value is missing or wrong, and
    ``LockUnreachableError`` if it asks the lock service and gets no answer in time.
    """

    def options(self, table: str, /) -> dict[str, str]:
        """Return the options of Hudi's lock provider.

        :param table: base path of the table that is written.
        """

    def view(self, table: str, table_name: str, /) -> CommitLock | None:
        """Open a view of the lock of a table; ``None`` if no service keeps it.

        :param table: base path of the table.
        :param table_name: its ``hoodie.table.name``.
        """


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
        from airflow_occ_provider.leases.zookeeper.commit_lock import ZookeeperCommitLock

        return ZookeeperCommitLock(self.access, self.base_path, table_name, self.access.session())


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
        from airflow_occ_provider.leases.metastore.locks import MetastoreCommitLock

        return MetastoreCommitLock(self.access, self.database, self._name_of(table))

    def _name_of(self, table: str) -> str:
        folder = posixpath.basename(canonical_table(table))
        return self.table or re.sub(r"[^a-z0-9_]", "_", folder.lower())[:128]


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
