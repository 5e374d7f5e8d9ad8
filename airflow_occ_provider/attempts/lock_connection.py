"""What an attempt needs of the lock connection: options, lock and queue."""

from __future__ import annotations

from typing import Protocol

from airflow_occ_provider.leases.commit_lock import CommitLock
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.queue import Queue


class LockConnection(Protocol):
    """The lock service as a connection describes it."""

    lock_conn_id: str

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
