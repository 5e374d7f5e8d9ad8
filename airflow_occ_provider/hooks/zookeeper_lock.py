"""The connection ``hudi_zookeeper_lock``: where Hudi's writers take their commit lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hudi.options import zookeeper_lock_options

if TYPE_CHECKING:
    from airflow.sdk import Connection

_CHECK_TIMEOUT_S = 10.0


class HudiZookeeperLockHook(BaseHook):
    """Turn a ``hudi_zookeeper_lock`` connection into the options of Hudi's ZooKeeper lock provider.

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
        """Return Hudi's lock options from the connection.

        :raises ConfigurationError: if a field of the connection is missing or wrong.
        """
        connection = self.get_conn()
        return zookeeper_lock_options(
            _hosts(connection),
            _base_path(connection),
            session_timeout_ms=_number(connection, "session_timeout_ms", 60_000),
            connection_timeout_ms=_number(connection, "connection_timeout_ms", 15_000),
            wait_time_ms=_number(connection, "wait_time_ms", 60_000),
            num_retries=_number(connection, "num_retries", 50),
        )

    def check(self) -> str:
        """Talk to ZooKeeper and say what was found.

        :raises ConfigurationError: if a field of the connection is missing or wrong.
        :raises LockUnreachableError: if ZooKeeper does not answer within the connection time-out,
            10 seconds at most.
        """
        from airflow_occ_provider.leases.zookeeper import check_lock_service

        self.options()
        connection = self.get_conn()
        timeout_s = _number(connection, "connection_timeout_ms", 15_000) / 1000
        return check_lock_service(
            _hosts(connection), _base_path(connection), timeout_s=min(timeout_s, _CHECK_TIMEOUT_S)
        )

    def test_connection(self) -> tuple[bool, str]:
        """Answer Airflow's *Test* button with what ZooKeeper itself said."""
        try:
            return True, self.check()
        except (ConfigurationError, LockUnreachableError) as error:
            return False, str(error)


def _hosts(connection: Connection) -> str:
    host = (connection.host or "").strip()
    if not host:
        raise ConfigurationError(
            f"connection {connection.conn_id!r}, hosts",
            "is empty",
            remedy="enter host:port pairs, such as zk1:2181,zk2:2181,zk3:2181",
        )
    # The port belongs into the list: Hudi's provider reads no port of its own.
    return f"{host}:{connection.port}" if connection.port and ":" not in host else host


def _base_path(connection: Connection) -> str:
    path = str(_extra(connection).get("base_path") or "/hudi/locks").strip()
    if not path.startswith("/") or path == "/" or path.endswith("/"):
        raise ConfigurationError(
            f"connection {connection.conn_id!r}, base_path",
            f"{path!r} is not a ZooKeeper path",
            remedy="enter an absolute path without a slash at its end, such as /hudi/locks",
        )
    return path


def _number(connection: Connection, name: str, default: int) -> int:
    given = _extra(connection).get(name)
    try:
        number = default if given in (None, "") else int(given)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        raise ConfigurationError(
            f"connection {connection.conn_id!r}, {name}",
            f"{given!r} is not a whole number of 0 or more",
            remedy=f"enter a number, or leave it empty for {default}",
        )
    return number


def _extra(connection: Connection) -> dict[str, Any]:
    extra = connection.extra_dejson
    return extra if isinstance(extra, dict) else {}
