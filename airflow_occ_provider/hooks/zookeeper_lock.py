"""The connection ``hudi_zookeeper_lock``: lock and leases in ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_occ_provider.hooks.hudi_lock import (
    ANSWER_TIMEOUT_MS,
    Fields,
    HudiLock,
    HudiLockHook,
    answer_timeout_s,
    ttl_s,
)
from airflow_occ_provider.hudi.writer.options import zookeeper_lock_options
from airflow_occ_provider.leases.lease import Terms

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.leases.queue import Queue
    from airflow_occ_provider.leases.zookeeper.client import Access, Session, Tls
    from airflow_occ_provider.leases.zookeeper.commit_lock import ZookeeperCommitLock

_BASE_PATH = "hoodie.write.lock.zookeeper.base_path"


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
    def service(self) -> ZookeeperEnsemble:
        """The ensemble that the connection names."""
        return ZookeeperEnsemble(self._connection, self._fields)

    def _service_lock(self) -> ZookeeperLock:
        return ZookeeperLock(self.service)

    def _lease_backend(self, lock: HudiLock) -> ZookeeperLeases:
        return ZookeeperLeases(self.service, lock)


@dataclass(frozen=True, slots=True)
class ZookeeperEnsemble:
    """The ZooKeeper ensemble of a connection.

    :param connection: the Airflow connection.
    :param fields: its extra fields.
    """

    connection: Connection
    fields: Fields
    _sessions: list[Session] = field(default_factory=list, compare=False, repr=False)

    def session(self) -> Session:
        """Open a session, which the caller closes.

        What uses the connection at the same time shares one: a server limits them for each address.
        """
        from airflow_occ_provider.leases.zookeeper.client import Session

        for session in self._sessions:
            if session.share():
                return session
        session = Session(self.access)
        self._sessions[:] = [session]
        return session

    @property
    def hosts(self) -> str:
        """Its ``host:port`` pairs, separated by commas, with an optional chroot.

        The leases and Hudi's own lock get the same text.
        """
        from airflow_occ_provider.leases.zookeeper.hosts import connect_string

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
    def access(self) -> Access:
        """How a client reaches it."""
        from airflow_occ_provider.leases.zookeeper.client import Access

        login, password = self.connection.login or "", self.connection.password or ""
        if password and not login:
            raise self.fields.error(
                "login", "is empty, but there is a password", "enter the login that owns the leases"
            )
        return Access(self.hosts, answer_timeout_s(self.fields), login, password, self._tls)

    @property
    def _tls(self) -> Tls | None:
        from airflow_occ_provider.leases.zookeeper.client import Tls

        if not self.fields.flag("tls"):
            return None
        return Tls(
            self.fields.text("tls_ca"),
            self.fields.text("tls_certificate"),
            self.fields.text("tls_key"),
            verify=self.fields.flag("tls_verify", default=True),
        )


@dataclass(frozen=True, slots=True)
class ZookeeperLock:
    """Hudi's lock in ZooKeeper.

    :param service: the ensemble.
    """

    service: ZookeeperEnsemble

    @property
    def base_path(self) -> str:
        """The node under which each table has its lock."""
        return self.service.fields.path("base_path", "/hudi/locks")

    def options(self, table: str) -> dict[str, str]:  # noqa: ARG002 - Hudi uses each table's name
        """Return the options of Hudi's ``ZookeeperBasedLockProvider``."""
        fields = self.service.fields
        return zookeeper_lock_options(
            self.service.hosts,
            self.base_path,
            session_timeout_ms=fields.number("session_timeout_ms", 60_000),
            connection_timeout_ms=fields.number("connection_timeout_ms", ANSWER_TIMEOUT_MS),
            wait_time_ms=fields.number("wait_time_ms", 60_000),
            num_retries=fields.number("num_retries", 50),
        )

    def view(self, table: str, table_name: str) -> ZookeeperCommitLock:  # noqa: ARG002
        """Open a view of the lock."""
        from airflow_occ_provider.leases.zookeeper.commit_lock import ZookeeperCommitLock

        service = self.service
        return ZookeeperCommitLock(service.access, self.base_path, table_name, service.session())


@dataclass(frozen=True, slots=True)
class ZookeeperLeases:
    """The leases in ZooKeeper.

    :param service: the ensemble.
    :param lock: Hudi's own lock, whose nodes the leases must not overlap.
    """

    service: ZookeeperEnsemble
    lock: HudiLock

    def terms(self) -> Terms:
        """Return the TTLs of the leases."""
        fields = self.service.fields
        lease_s = ttl_s(fields, "lease_ttl_s", 60)
        claim_s = fields.number("claim_ttl_s", max(600, lease_s), at_least=lease_s)
        return Terms(lease_s * 1000, claim_s * 1000)

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        from airflow_occ_provider.leases.queue import Queue
        from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore

        root = self.root  # a wrong one is refused before anything connects
        return Queue(ZookeeperStore(self.service.access, root, self.service.session()))

    def validate(self) -> None:
        """Check the fields."""
        self.terms()
        _ = self.service.access, self.root

    def test(self) -> str:
        """Check that a client may create nodes; return a summary."""
        from airflow_occ_provider.leases.zookeeper.client import check_lock_service

        base_path = self.lock.base_path if isinstance(self.lock, ZookeeperLock) else None
        return check_lock_service(self.service.access, base_path, self.root)

    @property
    def root(self) -> str:
        """The node under which the leases are kept.

        :raises ConfigurationError: if it overlaps the nodes of Hudi's lock.
        """
        root = self.service.fields.path("lease_root", "/airflow_occ/leases")
        base = self.lock.options("").get(_BASE_PATH)
        if base and (f"{root}/".startswith(f"{base}/") or f"{base}/".startswith(f"{root}/")):
            raise self.service.fields.error(
                "lease_root",
                f"{root} and Hudi's base path {base} overlap: at its commit a job would wait "
                "for its own lease",
                "enter a separate path, such as /airflow_occ/leases",
            )
        return root
