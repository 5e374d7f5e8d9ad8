"""The lookup of a lock connection's hook by connection type."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.connection_form import LOCK_FORMS
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook

if TYPE_CHECKING:
    from airflow.sdk import Connection


def lock_hook(lock_conn_id: str) -> HudiLockHook:
    """Return the hook of a lock connection; a thread imports a client that takes long.

    :param lock_conn_id: id of the connection.
    :raises ConfigurationError: if the connection does not exist, or is not a lock connection.
    """
    try:
        connection = BaseHook.get_connection(lock_conn_id)
    except AirflowNotFoundException as error:
        names = " or ".join(repr(form["hook-name"]) for form in _forms().values())
        raise ConfigurationError(
            "lock_conn_id",
            f"connection {lock_conn_id!r} does not exist",
            remedy=f"create it under Admin > Connections with the type {names}",
        ) from error
    return _hook_of(lock_conn_id, connection)


def lock_hook_if_any(lock_conn_id: str | None) -> HudiLockHook | None:
    """Return the hook of a named lock connection, or of the default if that exists.

    :param lock_conn_id: id of the connection; ``None`` for the default.
    :raises ConfigurationError: as ``lock_hook``.
    """
    if lock_conn_id is not None:
        return lock_hook(lock_conn_id)
    default = HudiLockHook.default_conn_name
    try:
        connection = BaseHook.get_connection(default)
    except AirflowNotFoundException:
        return None
    return _hook_of(default, connection)


def _forms() -> dict[str, dict[str, Any]]:
    return {form["connection-type"]: form for form in (lock_form() for lock_form in LOCK_FORMS)}


def _hook_of(lock_conn_id: str, connection: Connection) -> HudiLockHook:
    forms = _forms()
    if connection.conn_type not in forms:
        raise ConfigurationError(
            "lock_conn_id",
            f"connection {lock_conn_id!r} has the type {connection.conn_type!r}, which is not a lock",
            remedy=f"use a connection of the type {' or '.join(map(repr, forms))}",
        )
    module, _, name = forms[connection.conn_type]["hook-class-name"].rpartition(".")
    hook = cast("type[HudiLockHook]", getattr(import_module(module), name))(lock_conn_id, connection)
    hook.load_client()
    return hook
