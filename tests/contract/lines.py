"""Queues over each backend, each with a clock that a test moves, on a way that loses answers."""

from __future__ import annotations

import pytest

from airflow_occ_provider.leases.metastore.locks import MetastoreLocks
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from airflow_occ_provider.testing.queues import Clock, Lossy

POLL_S = 0.2

STORES = ("memory", "zookeeper", "folder", "bucket")
METASTORE = "metastore"
# A metastore removes the dead itself, by its own clock alone: tests.real.test_lease_metastore.
where_waiters_remove_the_dead = pytest.mark.parametrize("backend", STORES, indirect=True)


class MetastoreProcess(MetastoreLeases):
    """The same over a metastore, whose locks go by its own clock."""

    def __init__(self, locks: MetastoreLocks, timeout_s: int) -> None:
        called = {"create": "lock", "replace": "lock", "on_delete": "check"}
        self.way, self.clock = Lossy(locks, called), Clock()
        super().__init__(self.way, timeout_s * 1000, poll_s=POLL_S, clock=self.clock)

    def forget(self) -> None:
        """Nothing is known but what the metastore says."""
