"""A view of Hudi's own commit lock in a Hive metastore. It makes and changes nothing."""

from __future__ import annotations

from airflow_occ_provider.leases.commit_lock import LockSeat
from airflow_occ_provider.leases.metastore.client import Access, MetastoreClient
from airflow_occ_provider.leases.metastore.locks import MetastoreLocks


class MetastoreCommitLock:
    """A ``CommitLock`` as Hudi's metastore lock provider makes it.

    :param access: where the metastore is, and how to speak to it.
    :param database: that the lock is on.
    :param table: of the database.
    :raises LockUnreachableError: if the metastore does not answer in time.
    """

    def __init__(self, access: Access, database: str, table: str) -> None:
        self.path = f"{database}.{table}"
        self._table = table
        self._locks = MetastoreLocks(MetastoreClient(access), database)

    def seats(self) -> tuple[LockSeat, ...]:
        """Return who has the lock and who waits for it, the holder first."""
        rows = sorted(self._locks.rows(self._table), key=lambda row: (not row.acquired, row.lock_id))
        return tuple(LockSeat(row.lock_id, row.who, row.acquired_ms, row.acquired) for row in rows)

    def times_taken(self) -> None:
        """Return ``None``: a metastore does not count."""

    def close(self) -> None:
        """End the connection."""
        self._locks.close()
