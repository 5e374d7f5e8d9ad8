"""Leases in ZooKeeper by plain values; the client is imported late."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.writer.options import ZOOKEEPER_BASE_PATH, ZOOKEEPER_URL
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess, is_one_ensemble

if TYPE_CHECKING:
    from airflow_occ_provider.leases.backend import HudiLock
    from airflow_occ_provider.leases.queue import Queue


LEASE_ROOT = "/airflow_occ/leases"
_TERMS = Terms(60_000, 600_000)


@dataclass(frozen=True, slots=True)
class ZookeeperLeases:
    """Leases in ZooKeeper: a ``LeaseBackend``.

    :param root: the node under which they are kept.
    :param ttls: of the leases.
    :param locks_root: the node under which Hudi's own locks are, if they are in the same ensemble.
    :raises ConfigurationError: if the two nodes overlap.
    """

    access: ZookeeperAccess
    root: str = LEASE_ROOT
    ttls: Terms = _TERMS
    locks_root: str = ""

    def __post_init__(self) -> None:
        refuse_overlap(self.root, self.locks_root)

    def beside(self, lock: HudiLock) -> ZookeeperLeases:
        """Return leases that know the base path of Hudi's lock, which may not overlap."""
        options = lock.options("/check")
        base_path = options.get(ZOOKEEPER_BASE_PATH, "")
        if is_one_ensemble(options.get(ZOOKEEPER_URL, ""), self.access.hosts):
            return replace(self, locks_root=base_path)
        refuse_overlap(self.root, base_path)
        return self

    def terms(self) -> Terms:
        """Return the TTLs of the leases."""
        return self.ttls

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        from airflow_occ_provider.leases.queue import Queue
        from airflow_occ_provider.leases.zookeeper.client import shared_session
        from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore

        return Queue(ZookeeperStore(self.access, self.root, shared_session(self.access)))

    def validate(self) -> None:
        """Check nothing: the values were checked when they were given."""

    def test(self) -> str:
        """Check that a client may create nodes; return a summary."""
        from airflow_occ_provider.leases.zookeeper.client import check_lock_service

        return check_lock_service(self.access, self.locks_root or None, self.root)


def refuse_overlap(root: str, locks_root: str) -> None:
    """Refuse a root of leases that overlaps the nodes of Hudi's locks.

    :param locks_root: empty if Hudi's locks are in no ensemble.
    :raises ConfigurationError: then.
    """
    if not locks_root:
        return
    if f"{root}/".startswith(f"{locks_root}/") or f"{locks_root}/".startswith(f"{root}/"):
        raise ConfigurationError(
            "lease_root",
            f"{root} and Hudi's base path {locks_root} overlap: at its commit a job would wait for its "
            "own lease",
            remedy=f"enter a separate path, such as {LEASE_ROOT}",
        )
