"""The connection ``hudi_storage_lock``: no lock service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLock, HudiLockHook, answer_timeout_s, ttl_s
from airflow_occ_provider.hooks.storage_access import storage_access
from airflow_occ_provider.hudi.writer.storage_lock import (
    FILE_LOCK_SCHEMES,
    OBJECT_LOCK_SCHEMES,
    RETRY_S,
    file_lock_options,
    storage_lock_options,
)
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.storage.address import Root, open_shared_object, parse_root
from airflow_occ_provider.storage.address import parse_table_path

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.hooks.fields import Fields
    from airflow_occ_provider.leases.queue import Queue
    from airflow_occ_provider.leases.storage.bucket import BucketObject
    from airflow_occ_provider.leases.storage.folder import FolderObject

_RETRIES_A_MINUTE = 60 // RETRY_S
_GATHERS_PER_TTL = 60  # a renewal that waits to be gathered is late by a part of its period at most


class HudiStorageLockHook(HudiLockHook):
    """The hook of a ``hudi_storage_lock`` connection.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_storage_lock"
    hook_name = "Hudi lock (storage)"
    limits = (
        "Not checked: Hudi's own lock, which lies beside each table. In a bucket, a driver needs a "
        "class of hudi-aws-bundle, hudi-gcp-bundle or hudi-azure-bundle, and looks for it before its "
        "job begins. On a local disk or HDFS, Hudi does not promise that only one writer holds its "
        "lock: use that to try things out, or on a small site."
    )

    @cached_property
    def service(self) -> LeaseRoot:
        """The folder that the connection names."""
        return LeaseRoot(self._connection, self._fields)

    @property
    def _example_table(self) -> str:
        return "/check" if self.service.root.is_local else "s3a://bucket/check"

    def _service_lock(self) -> StorageLock:
        return StorageLock(self._fields)

    def _lease_backend(self, lock: HudiLock) -> StorageLeases:  # noqa: ARG002 - they never overlap
        return StorageLeases(self.service)


@dataclass(frozen=True, slots=True)
class LeaseRoot:
    """The folder of a connection's leases.

    :param connection: the Airflow connection.
    :param fields: its extra fields.
    """

    connection: Connection
    fields: Fields

    @property
    def url(self) -> str:
        """The folder's URL, or its path on a local disk."""
        return (self.connection.host or "").strip()

    @property
    def root(self) -> Root:
        """What the URL names.

        :raises ConfigurationError: if it names no folder for leases.
        """
        if not self.url:
            raise self.fields.error("lease_root", "is empty", "enter a folder, such as s3://lake/leases")
        with self.named():
            root = parse_root(self.url)
        if ".hoodie" in root.folder.split("/"):
            raise self.fields.error(
                "lease_root",
                f"{self.url} lies in a table's .hoodie, which is Hudi's",
                "enter a folder outside of all tables",
            )
        return root

    def open(self) -> BucketObject | FolderObject:
        """Return the object that holds the leases; nothing is sent to it yet.

        :raises ConfigurationError: if a field is wrong, or the client is not installed.
        """
        root, conn_id = self.root, self.fields.text("storage_conn_id")
        access = storage_access(root.kind, conn_id, self.fields) if conn_id else None
        timeout_s = answer_timeout_s(self.fields)
        with self.named():
            return open_shared_object(self.url, access, timeout_s=timeout_s)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the connection in an error about the address or its credentials."""
        try:
            yield
        except ConfigurationError as error:
            field = "storage_conn_id" if error.field == "credentials" else error.field
            message = error.message.removeprefix(f"{error.field}: ")
            raise self.fields.error(field, message, error.remedy) from error


@dataclass(frozen=True, slots=True)
class StorageLock:
    """Hudi's lock in the storage of each table, by the scheme of its path.

    :param fields: of the connection.
    """

    fields: Fields

    def options(self, table: str) -> dict[str, str]:
        """Return the options of the lock provider of the table's scheme."""
        scheme, path = parse_table_path(table)
        if scheme in OBJECT_LOCK_SCHEMES:
            return storage_lock_options(
                wait_time_ms=self.fields.number("wait_time_ms", 60_000, at_least=1),
                num_retries=self.fields.number("num_retries", 50),
            )
        if scheme in FILE_LOCK_SCHEMES:
            return self._file_options()
        raise self.fields.error(
            "type",
            f"Hudi has no lock in the storage of {path}",
            "use a connection of ZooKeeper or of a Hive metastore, or enter another lock of Hudi",
        )

    def view(self, table: str, table_name: str) -> None:  # noqa: ARG002
        """Return ``None``: the lock is a file of the table, read with its own credentials."""
        return

    def _file_options(self) -> dict[str, str]:
        expire_min = self.fields.number("lock_expire_min", 10, at_least=1)
        least = expire_min * _RETRIES_A_MINUTE + 1
        num_retries = self.fields.number("num_retries", 2 * expire_min * _RETRIES_A_MINUTE)
        if num_retries < least:
            raise self.fields.error(
                "num_retries",
                f"a writer gives up after {num_retries * RETRY_S} s and then deletes the lock of "
                f"another writer, while that of a killed one expires after {expire_min * 60} s",
                f"enter {least} or more, or leave it empty",
            )
        return file_lock_options(expire_min=expire_min, num_retries=num_retries)


@dataclass(frozen=True, slots=True)
class StorageLeases:
    """The leases in a folder.

    :param service: the folder.
    """

    service: LeaseRoot

    def terms(self) -> Terms:
        """Return the TTLs of the leases, by default those of the folder's storage."""
        fields, pace = self.service.fields, self.service.root.pace
        lease_s = ttl_s(fields, "lease_ttl_s", pace.ttl_s)
        claim_s = fields.number("claim_ttl_s", max(pace.claim_ttl_s, lease_s), at_least=lease_s)
        return Terms(lease_s * 1000, claim_s * 1000)

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        from airflow_occ_provider.leases.queue import Queue
        from airflow_occ_provider.leases.storage.store import StorageStore

        shared, pace = self.service.open(), self.service.root.pace
        timeout_s, lease_s = answer_timeout_s(self.service.fields), self.terms().ttl_ms / 1000
        gather_s = min(pace.gather_s, lease_s / _GATHERS_PER_TTL)
        return Queue(StorageStore(shared, self._poll_s, timeout_s, gather_s))

    def validate(self) -> None:
        """Check the fields, and that the client is installed."""
        self.terms()
        _ = self._poll_s
        self.service.open()

    def test(self) -> str:
        """Check that the storage refuses a write whose condition does not hold."""
        from airflow_occ_provider.leases.storage.conditions import check_conditions

        shared, race_s = self.service.open(), answer_timeout_s(self.service.fields)
        with self.service.named():
            return check_conditions(shared, race_s=race_s)

    @property
    def _poll_s(self) -> int:
        fields, pace = self.service.fields, self.service.root.pace
        return fields.number("lease_poll_s", pace.poll_s, at_least=1)
