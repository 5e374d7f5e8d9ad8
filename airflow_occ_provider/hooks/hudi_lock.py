"""A lock connection: where the leases are kept, and Hudi's own lock."""

from __future__ import annotations

import math
import posixpath
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.connection_form import LOCK_FORMS
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hudi.format.properties import parse_defaults
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, contradictions
from airflow_occ_provider.hudi.writer.storage_lock import (
    FILE_LOCK_PATH,
    FILE_LOCK_PROVIDER,
    file_lock_store,
)
from airflow_occ_provider.leases.observer import RENEWALS_PER_TTL

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.leases.commit_lock import CommitLock
    from airflow_occ_provider.leases.lease import Terms
    from airflow_occ_provider.leases.queue import Queue


ANSWER_TIMEOUT_MS = 15_000
LONGEST_ANSWER_S = 10.0
_SHORTEST_TTL_S = 3
_QUEUE_MODULE = "airflow_occ_provider.leases.queue"
_FLAGS = {"true": True, "1": True, "yes": True, "on": True}
_FLAGS |= {"false": False, "0": False, "no": False, "off": False}


class HudiLock(Protocol):
    """Hudi's own lock, which a writer takes to commit, as a connection configures it.

    Each method raises ``ConfigurationError`` if a field of the connection is missing or wrong, and
    ``LockUnreachableError`` if it asks the lock service and gets no answer in time.
    """

    def options(self, table: str) -> dict[str, str]:
        """Return the options of Hudi's lock provider.

        :param table: base path of the table that is written.
        """

    def view(self, table: str, table_name: str) -> CommitLock | None:
        """Open a view of the lock of a table; ``None`` if no service keeps it.

        :param table: base path of the table.
        :param table_name: its ``hoodie.table.name``.
        """


class LeaseBackend(Protocol):
    """The service that keeps a connection's leases.

    Each method raises ``ConfigurationError`` if a field of the connection is missing, wrong or rejected,
    and ``LockUnreachableError`` if it asks the lock service and gets no answer in time: ``test`` within
    the connection time-out, at most 10 seconds, for each of its steps.
    """

    def terms(self) -> Terms:
        """Return the TTLs of the leases."""

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""

    def validate(self) -> None:
        """Check the connection's fields, without a request; each try of a task does so."""

    def test(self) -> str:
        """Check that the service answers and grants; return a summary.

        It is for people: it may make as many requests as it needs.
        """


@dataclass(frozen=True, slots=True)
class GivenLock:
    """A lock of Hudi in another service, by options of the connection.

    :param given: the options.
    """

    given: dict[str, str]

    def options(self, table: str) -> dict[str, str]:  # noqa: ARG002 - the same for all tables
        """Return the given options."""
        return dict(self.given)

    def view(self, table: str, table_name: str) -> None:  # noqa: ARG002
        """Return ``None``: the connection does not name that service."""
        return


class HudiLockHook(BaseHook):
    """The base hook of a lock connection.

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
        given = _given_options(self._fields)
        return GivenLock(given) if given else self._service_lock()

    @cached_property
    def lease_backend(self) -> LeaseBackend:
        """The service that keeps the leases."""
        return self._lease_backend(self.hudi_lock)

    def options(self, table: str) -> dict[str, str]:
        """Return Hudi's lock options; see ``HudiLock.options``."""
        options = self.hudi_lock.options(table)
        if place := file_lock_store(options, table):
            raise self._fields.error(
                "hudi_lock_options",
                f"{FILE_LOCK_PROVIDER} cannot lock in an object store: {place}",
                f"name StorageBasedLockProvider, leave the field empty, or enter a path on HDFS or a "
                f"local disk as {FILE_LOCK_PATH}",
            )
        return options

    def commit_lock(self, table: str, table_name: str) -> CommitLock | None:
        """Open a view of Hudi's own lock; see ``HudiLock.view``."""
        return self.hudi_lock.view(table, table_name)

    def terms(self) -> Terms:
        """Return the TTLs of the leases; see ``LeaseBackend.terms``."""
        return self.lease_backend.terms()

    def load_client(self) -> None:
        """Import a client that takes long to import in a thread, while Airflow answers."""
        if self.client_module:
            Thread(target=_load, args=(self.client_module,), daemon=True, name="load-client").start()

    def leases(self) -> Queue:
        """Open the queue of leases, which the caller closes; see ``LeaseBackend.open``."""
        return self.lease_backend.open()

    def validate(self) -> None:
        """Check the connection's fields, without a request; see ``LeaseBackend.validate``."""
        self.options(self._example_table)
        self.lease_backend.validate()

    def test(self) -> str:
        """Check the connection to the lock service; see ``LeaseBackend.test``."""
        self.validate()
        return self.lease_backend.test()

    def test_connection(self) -> tuple[bool, str]:
        """Return the result for Airflow's *Test* button."""
        try:
            return True, f"{self.test()} {self.limits}".strip()
        except (ConfigurationError, LockUnreachableError) as error:
            return False, str(error)

    @property
    def _example_table(self) -> str:
        """A table for which the options are checked."""
        return "/check"

    @abstractmethod
    def _service_lock(self) -> HudiLock:
        """Return Hudi's lock in this service."""

    @abstractmethod
    def _lease_backend(self, lock: HudiLock) -> LeaseBackend:
        """Return the leases in this service, which must not overlap Hudi's lock."""

    @cached_property
    def _connection(self) -> Connection:
        return self._given or self.get_conn()

    @cached_property
    def _fields(self) -> Fields:
        return Fields(self._connection)


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


def _given_options(fields: Fields) -> dict[str, str]:
    given = fields.text("hudi_lock_options")
    options = dict(parse_defaults(given))
    if given and LOCK_PROVIDER not in options:
        raise fields.error(
            "hudi_lock_options",
            f"they do not name {LOCK_PROVIDER}",
            "add the provider's class, or leave the field empty for Hudi's lock in this service",
        )
    for one in contradictions(options.items(), "hudi_lock_options"):
        if one.key != LOCK_PROVIDER:
            raise fields.error(one.source, f"{one.key}={one.value}", one.remedy)
    return options


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

    def text(self, name: str, default: str = "") -> str:
        """Return a field as text."""
        return str(self._extra.get(name) or default).strip()

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a field as a boolean.

        :raises ConfigurationError: if it is neither true nor false.
        """
        given = str(self._extra.get(name) if self._extra.get(name) is not None else "").strip().lower()
        if given and given not in _FLAGS:
            raise self.error(name, f"{given!r} is neither true nor false", "enter true or false")
        return _FLAGS[given] if given else default

    def number(self, name: str, default: int, *, at_least: int = 0) -> int:
        """Return a field as a whole number.

        :raises ConfigurationError: if it is not a number, or too small.
        """
        given = self._extra.get(name)
        try:
            number = default if given in (None, "") else int(given)
        except (TypeError, ValueError):
            number = at_least - 1
        if number < at_least:
            raise self.error(
                name,
                f"{given!r} is not a whole number of {at_least} or more",
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
