"""The connection ``hudi_zookeeper_lock``: lock and leases in ZooKeeper."""

from __future__ import annotations

from functools import cached_property

from airflow_occ_provider.attempts.locks import ZookeeperLock
from airflow_occ_provider.hooks.hudi_lock import (
    ANSWER_TIMEOUT_MS,
    HudiLockHook,
    answer_timeout_s,
    ttl_s,
)
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.zookeeper.access import Tls, ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.backend import LEASE_ROOT, ZookeeperLeases


class HudiZookeeperLockHook(HudiLockHook):
    """The hook of a ``hudi_zookeeper_lock`` connection.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_zookeeper_lock"
    hook_name = "Hudi lock (ZooKeeper)"
    client_module = "airflow_occ_provider.leases.zookeeper.store"
    limits = (
        "Not checked: how many connections ZooKeeper accepts from one address (maxClientCnxns, default "
        "60). Each running writer needs up to two."
    )

    @cached_property
    def access(self) -> ZookeeperAccess:
        """The way to the ensemble that the connection names."""
        login = self.connection.login or ""
        password = self.connection.password or ""
        if password and not login:
            raise self.fields.error(
                "login", "is empty, but there is a password", "enter the login that owns the leases"
            )
        timeout_s = answer_timeout_s(self.fields)
        return ZookeeperAccess(self._hosts, timeout_s, login, password, self._tls)

    def service_lock(self) -> ZookeeperLock:
        """Return Hudi's lock in ZooKeeper."""
        fields = self.fields
        return ZookeeperLock(
            self.access,
            fields.path("base_path", "/hudi/locks"),
            session_timeout_ms=fields.number("session_timeout_ms", 60_000),
            connection_timeout_ms=fields.number("connection_timeout_ms", ANSWER_TIMEOUT_MS),
            wait_time_ms=fields.number("wait_time_ms", 60_000),
            num_retries=fields.number("num_retries", 50),
        )

    def service_leases(self) -> ZookeeperLeases:
        """Return the leases in ZooKeeper."""
        fields = self.fields
        root = fields.path("lease_root", LEASE_ROOT)
        lease_s = ttl_s(fields, "lease_ttl_s", 60)
        claim_s = fields.number("claim_ttl_s", max(600, lease_s), at_least=lease_s)
        return ZookeeperLeases(self.access, root, Terms(lease_s * 1000, claim_s * 1000))

    @property
    def _hosts(self) -> str:
        """The ``host:port`` pairs, separated by commas, with an optional chroot.

        The leases and Hudi's own lock get the same text.
        """
        from airflow_occ_provider.leases.zookeeper.access import connect_string

        host, port = (self.connection.host or "").strip(), self.connection.port
        if not host:
            raise self.fields.error(
                "hosts", "is empty", "enter host:port pairs, such as zk1:2181,zk2:2181,zk3:2181"
            )
        try:
            return connect_string(host, port)
        except ValueError as error:
            raise self.fields.error(
                "hosts",
                f"{host!r}: {error}",
                "enter host:port pairs separated by commas, and a chroot at the end if there is one, "
                "such as zk1:2181,zk2:2181/airflow",
            ) from error

    @property
    def _tls(self) -> Tls | None:
        if not self.fields.flag("tls"):
            return None
        return Tls(
            self.fields.text("tls_ca"),
            self.fields.text("tls_certificate"),
            self.fields.text("tls_key"),
            verify=self.fields.flag("tls_verify", default=True),
        )
