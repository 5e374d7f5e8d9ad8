"""What an attempt needs of the lock connection: Hudi's options, and Hudi's lock."""

from __future__ import annotations

from typing import Protocol

from airflow_occ_provider.leases.commit_lock import CommitLock


class LockSettings(Protocol):
    """Hudi's own lock as a connection describes it."""

    lock_conn_id: str

    def options(self, table: str) -> dict[str, str]:
        """Return Hudi's lock options for a table.

        :param table: its base path.
        """

    def commit_lock(self, table: str, key: str) -> CommitLock | None:
        """Return Hudi's lock of a table, for reading; ``None`` if it is not visible.

        :param table: its base path.
        :param key: the lock's key.
        """
