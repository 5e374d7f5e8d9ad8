"""The read-only view of Hudi's own commit lock in a Hive metastore."""

from __future__ import annotations

from airflow_occ_provider.leases.commit_lock import LockEntry
from airflow_occ_provider.leases.metastore.client import Access, MetastoreClient
from airflow_occ_provider.leases.metastore.locks import MetastoreLocks


class MetastoreCommitLock:
    """The ``CommitLock`` of Hudi's metastore lock provider.

    :raises LockUnreachableError: if the metastore does not answer in time.
    """

    def __init__(self, access: Access, database: str, table: str) -> None:
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
