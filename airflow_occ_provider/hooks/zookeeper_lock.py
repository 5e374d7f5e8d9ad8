"""The connection ``hudi_zookeeper_lock``: Hudi's commit lock, and the leases of our writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_occ_provider.hooks.hudi_lock import ANSWER_TIMEOUT_MS, HudiLockHook, Terms
from airflow_occ_provider.hudi.writer.options import zookeeper_lock_options

if TYPE_CHECKING:
    from airflow_occ_provider.leases.queue import Queue
    from airflow_occ_provider.leases.zookeeper.client import Access, Tls
    from airflow_occ_provider.leases.zookeeper.commit_lock import ZookeeperCommitLock

_BASE_PATH = "hoodie.write.lock.zookeeper.base_path"


class HudiZookeeperLockHook(HudiLockHook):
    """Serve what a ``hudi_zookeeper_lock`` connection says: Hudi's lock options, and our leases.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_zookeeper_lock"
    hook_name = "Hudi lock (ZooKeeper)"
    limits = (
        "It does not say how many connections it accepts from one address (maxClientCnxns, 60 by "
        "default): each running writer needs up to two."
    )

    def terms(self) -> Terms:
        """Return how long leases stand unrenewed.

        :raises ConfigurationError: if a field of the connection is wrong.
        """
        ttl_s = self._fields.number("lease_ttl_s", 60, at_least=3)
        claim_ttl_s = self._fields.number("claim_ttl_s", max(600, ttl_s), at_least=ttl_s)
        return Terms(ttl_s * 1000, claim_ttl_s * 1000)

    def leases(self) -> Queue:
        """Open the line of leases; the caller closes it.

        :raises ConfigurationError: if a field of the connection is missing or wrong, or refused.
        :raises LockUnreachableError: if ZooKeeper does not answer in time.
        """
        from airflow_occ_provider.leases.queue import Queue
        from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes

        return Queue(ZookeeperNodes(self._access, self._lease_root))

    def check(self) -> str:
        """Talk to ZooKeeper and say what was found.

        :raises ConfigurationError: if a field of the connection is missing or wrong, or refused.
        :raises LockUnreachableError: if ZooKeeper does not answer within the connection time-out,
            10 seconds at most.
        """
        from airflow_occ_provider.leases.zookeeper.client import check_lock_service

        self.options(table="")
        self.terms()
        base_path = None if self._other_lock else self._base_path
        return check_lock_service(self._access, base_path, self._lease_root)

    def _own_lock(self, table: str) -> dict[str, str]:  # noqa: ARG002 - Hudi takes each table's name
        fields = self._fields
        return zookeeper_lock_options(
            self._hosts,
            self._base_path,
            session_timeout_ms=fields.number("session_timeout_ms", 60_000),
            connection_timeout_ms=fields.number("connection_timeout_ms", ANSWER_TIMEOUT_MS),
            wait_time_ms=fields.number("wait_time_ms", 60_000),
            num_retries=fields.number("num_retries", 50),
        )

    def _view(self, table: str, table_name: str) -> ZookeeperCommitLock:  # noqa: ARG002
        from airflow_occ_provider.leases.zookeeper.commit_lock import ZookeeperCommitLock

        return ZookeeperCommitLock(self._access, self._base_path, table_name)

    @property
    def _hosts(self) -> str:
        connection = self._connection
        host = (connection.host or "").strip()
        if not host:
            raise self._fields.wrong(
                "hosts", "is empty", "enter host:port pairs, such as zk1:2181,zk2:2181,zk3:2181"
            )
        # The port belongs into the list: Hudi's provider reads no port of its own.
        return f"{host}:{connection.port}" if connection.port and ":" not in host else host

    @property
    def _base_path(self) -> str:
        return self._fields.path("base_path", "/hudi/locks")

    @property
    def _lease_root(self) -> str:
        root = self._fields.path("lease_root", "/airflow_occ/leases")
        base = self.options(table="").get(_BASE_PATH)
        if base and (f"{root}/".startswith(f"{base}/") or f"{base}/".startswith(f"{root}/")):
            raise self._fields.wrong(
                "lease_root",
                f"{root} and Hudi's base path {base} lie in each other: a job would wait at commit for "
                "the lease that it holds itself",
                "enter a path of its own, such as /airflow_occ/leases",
            )
        return root

    @property
    def _access(self) -> Access:
        from airflow_occ_provider.leases.zookeeper.client import Access

        connection = self._connection
        if connection.password and not connection.login:
            raise self._fields.wrong(
                "login", "is empty, but there is a password", "enter the login that the leases belong to"
            )
        return Access(
            self._hosts,
            self._answer_timeout_s,
            connection.login or "",
            connection.password or "",
            self._tls,
        )

    @property
    def _tls(self) -> Tls | None:
        from airflow_occ_provider.leases.zookeeper.client import Tls

        fields = self._fields
        if not fields.flag("tls"):
            return None
        return Tls(
            fields.text("tls_ca"),
            fields.text("tls_certificate"),
            fields.text("tls_key"),
            verify=fields.flag("tls_verify", default=True),
        )
