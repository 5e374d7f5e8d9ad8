"""A lock connection: where the leases are kept, and Hudi's own lock."""

from __future__ import annotations

import math
import posixpath
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.attempts.locks import GivenLock, lock_options
from airflow_occ_provider.connection_form import lock_forms
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hudi.format.properties import parse_defaults
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.leases.backend import HudiLock, LeaseBackend
    from airflow_occ_provider.leases.commit_lock import CommitLock
    from airflow_occ_provider.leases.lease import Terms
    from airflow_occ_provider.leases.queue import Queue


ANSWER_TIMEOUT_MS = 15_000
LONGEST_ANSWER_S = 10.0
_SHORTEST_TTL_S = 3
_WHOLE_CONNECTION = "lock connection"
_FIELD_OF = {"credentials": "storage_conn_id"}
"""The fields of a connection by the values that they give, if the names differ."""
_QUEUE_MODULE = "airflow_occ_provider.leases.queue"
_FLAGS = {"true": True, "1": True, "yes": True, "on": True}
_FLAGS |= {"false": False, "0": False, "no": False, "off": False}


class HudiLockHook(BaseHook):
    """The base hook of a lock connection.

    The hook of a type reads its ``connection`` and ``fields`` into two plain values, by ``service_lock``
    and ``service_leases``. The field ``hudi_lock_options`` is read here.

    :param lock_conn_id: id of the connection.
    :param connection: the connection, if the caller has already loaded it.
    """

    conn_name_attr = "lock_conn_id"
    default_conn_name = "hudi_lock_default"
    conn_type: ClassVar[str]
    hook_name: ClassVar[str]
    limits: ClassVar[str] = ""
    """What *Test* cannot check, as text."""
    client_module: ClassVar[str] = ""
    """The module with the service's client, if it takes long to import."""

    def __init__(
        self, lock_conn_id: str = default_conn_name, connection: Connection | None = None
    ) -> None:
        super().__init__()
        self.lock_conn_id = lock_conn_id
        self._given = connection

    def get_conn(self) -> Connection:
        """Return the Airflow connection, without connecting to the lock service."""
        return self.get_connection(self.lock_conn_id)

    @cached_property
    def hudi_lock(self) -> HudiLock:
        """Hudi's own lock: the one given as options, or that of this service.

        :raises ConfigurationError: if the options are wrong.
        """
        text = self.fields.text("hudi_lock_options")
        with self.fields.named():
            return GivenLock(dict(parse_defaults(text))) if text else self.service_lock()

    @cached_property
    def lease_backend(self) -> LeaseBackend:
        """The service that keeps the leases.

        :raises ConfigurationError: if a field is missing or wrong.
        """
        with self.fields.named():
            return self.service_leases().beside(self.hudi_lock)

    def options(self, table: str) -> dict[str, str]:
        """Return Hudi's lock options; see ``HudiLock.options``."""
        with self.fields.named():
            return lock_options(self.hudi_lock, table)

    def commit_lock(self, table: str, table_name: str) -> CommitLock | None:
        """Open a view of Hudi's own lock; see ``HudiLock.view``."""
        with self.fields.named():
            return self.hudi_lock.view(table, table_name)

    def terms(self) -> Terms:
        """Return the TTLs of the leases; see ``LeaseBackend.terms``."""
        with self.fields.named():
            return self.lease_backend.terms()

    def load_client(self) -> None:
        """Import a client that takes long to import in a thread, while Airflow answers."""
        if self.client_module:
            Thread(target=_load, args=(self.client_module,), daemon=True, name="load-client").start()

    def leases(self) -> Queue:
        """Open the queue of leases, which the caller closes; see ``LeaseBackend.open``."""
        with self.fields.named():
            return self.lease_backend.open()

    def validate(self) -> None:
        """Check the connection's fields, without a request; see ``LeaseBackend.validate``."""
        self.options(self.example_table)
        with self.fields.named():
            self.lease_backend.validate()

    def test(self) -> str:
        """Check the connection to the lock service; see ``LeaseBackend.test``."""
        self.validate()
        with self.fields.named():
            return self.lease_backend.test()

    def test_connection(self) -> tuple[bool, str]:
        """Return the result for Airflow's *Test* button."""
        try:
            return True, f"{self.test()} {self.limits}".strip()
        except (ConfigurationError, LockUnreachableError) as error:
            return False, str(error)

    @property
    def example_table(self) -> str:
        """A table for which the options are checked."""
        return "/check"

    @abstractmethod
    def service_lock(self) -> HudiLock:
        """Return Hudi's lock in this service, or beside each table.

        :raises ConfigurationError: if a field is missing or wrong.
        """

    @abstractmethod
    def service_leases(self) -> LeaseBackend:
        """Return the leases in this service.

        :raises ConfigurationError: if a field is missing or wrong.
        """

    @cached_property
    def connection(self) -> Connection:
        """The connection."""
        return self._given or self.get_conn()

    @cached_property
    def fields(self) -> Fields:
        """The connection's extra fields."""
        return Fields(self.connection)


def _load(module: str) -> None:
    with suppress(ImportError):  # the connection's first use explains it
        import_module(module)
        import_module(_QUEUE_MODULE)


def answer_timeout_s(fields: Fields) -> float:
    """Return the seconds after which a lock service counts as unreachable."""
    timeout_ms = fields.number("connection_timeout_ms", ANSWER_TIMEOUT_MS, at_least=1)
    return min(timeout_ms / 1000, LONGEST_ANSWER_S)


def ttl_s(fields: Fields, name: str, default_s: int) -> int:
    """Return a TTL of a field; refuse one in which three answers do not fit.

    A holder renews three times within a TTL, and one renewal may take as long as an answer may. With a
    shorter TTL a slow answer costs the lease, or is never in time to show that it is held.

    :param fields: of the connection.
    :param name: of the field.
    :param default_s: if the field is empty.
    """
    seconds, timeout_s = fields.number(name, default_s), answer_timeout_s(fields)
    least_s = max(_SHORTEST_TTL_S, math.ceil(RENEWALS_PER_TTL * timeout_s))
    if seconds != default_s and seconds < least_s:
        raise fields.error(
            name,
            f"{seconds} s, but an answer of the lock service may take {timeout_s:g} s, and a holder "
            f"renews {RENEWALS_PER_TTL} times within that",
            f"enter {least_s} or more, leave it empty, or shorten connection_timeout_ms",
        )
    return seconds


def lock_hook(lock_conn_id: str) -> HudiLockHook:
    """Return the hook of a lock connection; a thread imports a client that takes long.

    :param lock_conn_id: id of the connection.
    :raises ConfigurationError: if the connection does not exist, or is not a lock connection.
    """
    try:
        connection = BaseHook.get_connection(lock_conn_id)
    except AirflowNotFoundException as error:
        names = " or ".join(repr(form["hook-name"]) for form in lock_forms())
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


def _hook_of(lock_conn_id: str, connection: Connection) -> HudiLockHook:
    conn_type = connection.conn_type
    # Lazy: for a type of this package no other one is imported.
    form = next((form for form in lock_forms() if form["connection-type"] == conn_type), None)
    if form is None:
        types = " or ".join(repr(form["connection-type"]) for form in lock_forms())
        raise ConfigurationError(
            "lock_conn_id",
            f"connection {lock_conn_id!r} has the type {conn_type!r}, which is not a lock",
            remedy=f"use a connection of the type {types}",
        )
    module, _, name = form["hook-class-name"].rpartition(".")
    hook = cast("type[HudiLockHook]", getattr(import_module(module), name))(lock_conn_id, connection)
    hook.load_client()
    return hook


class Fields:
    """The extra fields of a connection, with their defaults.

    :param connection: the Airflow connection.
    """

    def __init__(self, connection: Connection) -> None:
        self.conn_id = connection.conn_id
        extra = connection.extra_dejson
        self._extra: dict[str, Any] = extra if isinstance(extra, dict) else {}

    def error(self, name: str, message: str, remedy: str) -> ConfigurationError:
        """Return the error for one field."""
        return ConfigurationError(f"connection {self.conn_id!r}, {name}", message, remedy=remedy)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the connection in an error about a value that one of its fields has given.

        The path of a table is the caller's.
        """
        try:
            yield
        except ConfigurationError as error:
            if error.field.startswith(("connection ", _WHOLE_CONNECTION)) or error.field == "table":
                raise
            field = _FIELD_OF.get(error.field, error.field)
            message = error.message.removeprefix(f"{error.field}: ")
            raise self.error(field, message, error.remedy) from error

    def has(self, name: str) -> bool:
        """Return whether a field is filled in."""
        return self._extra.get(name) not in (None, "")

    def text(self, name: str, default: str = "") -> str:
        """Return a field as text."""
        return str(self._extra.get(name) or default).strip()

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a field as a boolean.

        :raises ConfigurationError: if it is neither true nor false.
        """
        value = self._extra.get(name)
        text = "" if value is None else str(value).strip().lower()
        if text and text not in _FLAGS:
            raise self.error(name, f"{text!r} is neither true nor false", "enter true or false")
        return _FLAGS[text] if text else default

    def number(self, name: str, default: int, *, at_least: int = 0) -> int:
        """Return a field as a whole number.

        :raises ConfigurationError: if it is not a number, or too small.
        """
        value = self._extra.get(name)
        try:
            number = default if value in (None, "") else int(value)
        except (TypeError, ValueError):
            number = at_least - 1
        if number < at_least:
            raise self.error(
                name,
                f"{value!r} is not a whole number of {at_least} or more",
                f"enter a number, or leave it empty for {default}",
            )
        return number

    def path(self, name: str, default: str) -> str:
        """Return a field as a path in ZooKeeper.

        :raises ConfigurationError: if it is not a path.
        """
        path = self.text(name, default)
        # ZooKeeper clients normalize other spellings, so two different paths could be the same.
        if path == "/" or path != posixpath.normpath(f"/{path.lstrip('/')}"):
            raise self.error(
                name,
                f"{path!r} is not a ZooKeeper path",
                f"enter an absolute path without a trailing slash, such as {default}",
            )
        return path
