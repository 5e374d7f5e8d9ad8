"""The lookup of a lock connection's hook by connection type."""

from __future__ import annotations

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook
from airflow_occ_provider.hooks.metastore_lock import HudiMetastoreLockHook
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook

_KINDS: tuple[type[HudiLockHook], ...] = (HudiZookeeperLockHook, HudiMetastoreLockHook)
_HOOKS = {kind.conn_type: kind for kind in _KINDS}
_NAMES = " or ".join(repr(kind.hook_name) for kind in _KINDS)


def lock_hook(lock_conn_id: str) -> HudiLockHook:
    """Return the hook of a lock connection.

    :param lock_conn_id: id of the connection.
    :raises ConfigurationError: if the connection does not exist, or is not a lock connection.
    """
    try:
        connection = BaseHook.get_connection(lock_conn_id)
    except AirflowNotFoundException as error:
        raise ConfigurationError(
            "lock_conn_id",
            f"connection {lock_conn_id!r} does not exist",
            remedy=f"create it under Admin > Connections with the type {_NAMES}",
        ) from error
    conn_type = connection.conn_type
    if conn_type not in _HOOKS:
        raise ConfigurationError(
            "lock_conn_id",
            f"connection {lock_conn_id!r} has the type {conn_type!r}, which is not a lock",
            remedy=f"use a connection of the type {' or '.join(map(repr, _HOOKS))}",
        )
    return _HOOKS[conn_type](lock_conn_id, connection)
