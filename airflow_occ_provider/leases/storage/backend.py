"""Leases in a folder or a bucket by plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.storage.address import (
    LeasePace,
    StorageAccess,
    open_shared_object,
    parse_root,
)

if TYPE_CHECKING:
    from airflow_occ_provider.leases.queue import Queue
    from airflow_occ_provider.leases.storage.shared_object import PlacedObject

_GATHERS_PER_TTL = 60  # a renewal that waits to be gathered is late by a part of its period at most


@dataclass(frozen=True, slots=True)
class StorageLeases:
    """Leases in a folder: a ``LeaseBackend``.

    :param root: the folder's URL, or its path on this host.
    :param access: the way to its storage; ``None`` for the process's own credentials.
    :param ttls: of the leases; ``None`` for those that suit the storage.
    :param poll_s: the most seconds between two looks; ``None`` for what suits the storage.
    :param timeout_s: seconds for each request.
    """

    root: str
    access: StorageAccess | None = None
    ttls: Terms | None = None
    poll_s: int | None = None
    timeout_s: float = 10.0

    @property
    def pace(self) -> LeasePace:
        """How often the queue looks and writes, by default."""
        return parse_root(self.root).pace

    def terms(self) -> Terms:
        """Return the TTLs of the leases, by default those of the folder's storage."""
        return self.ttls or self.pace.terms

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        from airflow_occ_provider.leases.queue import Queue
        from airflow_occ_provider.leases.storage.shared_ledger import StorageStore

        pace = self.pace
        gather_s = min(pace.gather_s, self.terms().ttl_ms / 1000 / _GATHERS_PER_TTL)
        poll_s = self.poll_s or pace.poll_s
        return Queue(StorageStore(self._opened(), poll_s, self.timeout_s, gather_s))

    def validate(self) -> None:
        """Check the values, and that the client is installed."""
        self._opened()

    def test(self) -> str:
        """Check that the storage refuses a write whose condition does not hold."""
        from airflow_occ_provider.leases.storage.conditions import check_conditions

        return check_conditions(self._opened(), race_s=self.timeout_s)

    def _opened(self) -> PlacedObject:
        """Return the object that holds the leases; nothing is sent to it yet."""
        if ".hoodie" in parse_root(self.root).folder.split("/"):
            raise ConfigurationError(
                "lease_root",
                f"{self.root} lies in a table's .hoodie, which is Hudi's",
                remedy="enter a folder outside of all tables",
            )
        return open_shared_object(self.root, self.access, timeout_s=self.timeout_s)
