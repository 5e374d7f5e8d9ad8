"""The fields of a lock connection, with errors that name the field."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from airflow_occ_provider.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import Connection

_FLAGS = {"true": True, "1": True, "yes": True, "on": True}
_FLAGS |= {"false": False, "0": False, "no": False, "off": False}


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
