"""The connection ``hudi_zookeeper_lock``: Hudi's commit lock, and the leases of our writers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from airflow.sdk import BaseHook

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hooks.fields import Fields
from airflow_occ_provider.hudi.options import LOCK_PROVIDER, contradictions, zookeeper_lock_options
from airflow_occ_provider.hudi.properties import parse_defaults

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.leases.line import Line
    from airflow_occ_provider.leases.zookeeper.client import Access, Tls
    from airflow_occ_provider.leases.zookeeper.commit_lock import CommitLock

_BASE_PATH = "hoodie.write.lock.zookeeper.base_path"
_ANSWER_TIMEOUT_MS = 15_000
_LONGEST_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a lease stands unrenewed.

    :param ttl_ms: milliseconds, while a process renews it.
    :param claim_ttl_ms: milliseconds, while it passes from one process to the next.
    """

    ttl_ms: int
    claim_ttl_ms: int


class HudiZookeeperLockHook(BaseHook):
    """Serve what a ``hudi_zookeeper_lock`` connection says: Hudi's lock options, and our leases.

    :param lock_conn_id: id of the connection.
    """

    conn_name_attr = "lock_conn_id"
    default_conn_name = "hudi_lock_default"
    conn_type = "hudi_zookeeper_lock"
    hook_name = "Hudi lock (ZooKeeper)"

    def __init__(self, lock_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.lock_conn_id = lock_conn_id

    def get_conn(self) -> Connection:
        """Return the Airflow connection; no session to ZooKeeper is kept open."""
        return self.get_connection(self.lock_conn_id)

    def options(self) -> dict[str, str]:
        """Return the options of Hudi's lock: those given, else those of its ZooKeeper provider.

        :raises ConfigurationError: if a field of the connection is missing or wrong.
        """
        if self._other_lock:
            return self._other_lock
        fields = self._fields
        return zookeeper_lock_options(
            self._hosts,
            self._base_path,
            session_timeout_ms=fields.number("session_timeout_ms", 60_000),
            connection_timeout_ms=fields.number("connection_timeout_ms", _ANSWER_TIMEOUT_MS),
            wait_time_ms=fields.number("wait_time_ms", 60_000),
            num_retries=fields.number("num_retries", 50),
        )

    def terms(self) -> Terms:
        """Return how long leases stand unrenewed.

        :raises ConfigurationError: if a field of the connection is wrong.
        """
        ttl_s = self._fields.number("lease_ttl_s", 60, at_least=3)
        claim_ttl_s = self._fields.number("claim_ttl_s", max(600, ttl_s), at_least=ttl_s)
        return Terms(ttl_s * 1000, claim_ttl_s * 1000)

    def leases(self) -> Line:
        """Open the line of leases; the caller closes it.

        :raises ConfigurationError: if a field of the connection is missing or wrong, or refused.
        :raises LockUnreachableError: if ZooKeeper does not answer in time.
        """
        from airflow_occ_provider.leases.line import Line
        from airflow_occ_provider.leases.zookeeper.nodes import ZookeeperNodes

        return Line(ZookeeperNodes(self._access, self._lease_root))

    def commit_lock(self) -> CommitLock | None:
        """Open a view of Hudi's own lock; ``None`` where that is not in ZooKeeper.

        :raises ConfigurationError: if a field of the connection is missing or wrong.
        :raises LockUnreachableError: if ZooKeeper does not answer in time.
        """
        from airflow_occ_provider.leases.zookeeper.commit_lock import CommitLock

        return None if self._other_lock else CommitLock(self._access, self._base_path)

    def check(self) -> str:
        """Talk to ZooKeeper and say what was found.

        :raises ConfigurationError: if a field of the connection is missing or wrong, or refused.
        :raises LockUnreachableError: if ZooKeeper does not answer within the connection time-out,
            10 seconds at most.
        """
        from airflow_occ_provider.leases.zookeeper.client import check_lock_service

        self.options()
        self.terms()
        base_path = None if self._other_lock else self._base_path
        return check_lock_service(self._access, base_path, self._lease_root)

    def test_connection(self) -> tuple[bool, str]:
        """Answer Airflow's *Test* button with what ZooKeeper itself said."""
        try:
            return True, self.check()
        except (ConfigurationError, LockUnreachableError) as error:
            return False, str(error)

    @cached_property
    def _connection(self) -> Connection:
        return self.get_conn()

    @cached_property
    def _fields(self) -> Fields:
        return Fields(self._connection)

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
        base = self.options().get(_BASE_PATH)
        if base and (f"{root}/".startswith(f"{base}/") or f"{base}/".startswith(f"{root}/")):
            raise self._fields.wrong(
                "lease_root",
                f"{root} and Hudi's base path {base} lie in each other: a job would wait at commit for "
                "the lease that it holds itself",
                "enter a path of its own, such as /airflow_occ/leases",
            )
        return root

    @property
    def _other_lock(self) -> dict[str, str]:
        given = self._fields.text("hudi_lock_options")
        options = dict(parse_defaults(given))
        if given and LOCK_PROVIDER not in options:
            raise self._fields.wrong(
                "hudi_lock_options",
                f"they do not name {LOCK_PROVIDER}",
                "name the provider's class too, or leave the field empty for Hudi's ZooKeeper lock",
            )
        for one in contradictions(options.items(), "hudi_lock_options"):
            if one.key != LOCK_PROVIDER:
                raise self._fields.wrong(one.source, f"{one.key}={one.value}", one.remedy)
        return options

    @property
    def _access(self) -> Access:
        from airflow_occ_provider.leases.zookeeper.client import Access

        connection = self._connection
        if connection.password and not connection.login:
            raise self._fields.wrong(
                "login", "is empty, but there is a password", "enter the login that the leases belong to"
            )
        timeout_ms = self._fields.number("connection_timeout_ms", _ANSWER_TIMEOUT_MS)
        return Access(
            self._hosts,
            min(timeout_ms / 1000, _LONGEST_ANSWER_S),
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
