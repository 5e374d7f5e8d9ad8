"""The connection ``hudi_zookeeper_lock``: lock and leases in ZooKeeper."""

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
    """The hook of a ``hudi_zookeeper_lock`` connection.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_zookeeper_lock"
    hook_name = "Hudi lock (ZooKeeper)"
    limits = (
        "Not checked: how many connections ZooKeeper accepts from one address (maxClientCnxns, default "
        "60). Each running writer needs up to two."
    )

    def terms(self) -> Terms:
        """Return the TTLs of the leases.

        :raises ConfigurationError: if a field of the connection is wrong.
        """
        ttl_s = self._fields.number("lease_ttl_s", 60, at_least=3)
        claim_ttl_s = self._fields.number("claim_ttl_s", max(600, ttl_s), at_least=ttl_s)
        return Terms(ttl_s * 1000, claim_ttl_s * 1000)

    def leases(self) -> Queue:
        """Open the queue of leases; the caller closes it.

        :raises ConfigurationError: if a field of the connection is missing, wrong or rejected.
        :raises LockUnreachableError: if ZooKeeper does not answer in time.
        """
        from airflow_occ_provider.leases.queue import Queue
        from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore

        return Queue(ZookeeperStore(self._access, self._lease_root))

    def check(self) -> str:
        """Check the connection to ZooKeeper; return a summary.

        :raises ConfigurationError: if a field of the connection is missing, wrong or rejected.
        :raises LockUnreachableError: if ZooKeeper does not answer within the connection time-out, at
            most 10 seconds.
        """
        from airflow_occ_provider.leases.zookeeper.client import check_lock_service

        self.options(table="")
        self.terms()
        base_path = None if self._other_lock else self._base_path
        return check_lock_service(self._access, base_path, self._lease_root)

    def _own_lock(self, table: str) -> dict[str, str]:  # noqa: ARG002 - Hudi uses each table's name
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
            raise self._fields.error(
                "hosts", "is empty", "enter host:port pairs, such as zk1:2181,zk2:2181,zk3:2181"
            )
        # The port belongs in the list, because Hudi's provider reads no separate port.
        return f"{host}:{connection.port}" if connection.port and ":" not in host else host

    @property
    def _base_path(self) -> str:
        return self._fields.path("base_path", "/hudi/locks")

    @property
    def _lease_root(self) -> str:
        root = self._fields.path("lease_root", "/airflow_occ/leases")
        base = self.options(table="").get(_BASE_PATH)
        if base and (f"{root}/".startswith(f"{base}/") or f"{base}/".startswith(f"{root}/")):
            raise self._fields.error(
                "lease_root",
                f"{root} and Hudi's base path {base} overlap: at its commit a job would wait "
                "for its own lease",
                "enter a separate path, such as /airflow_occ/leases",
            )
        return root

    @property
    def _access(self) -> Access:
        from airflow_occ_provider.leases.zookeeper.client import Access

        connection = self._connection
        if connection.password and not connection.login:
            raise self._fields.error(
                "login", "is empty, but there is a password", "enter the login that owns the leases"
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
