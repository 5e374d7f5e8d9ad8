"""The access to a Hive metastore: its servers, time-outs and authentication."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from airflow_occ_provider.errors import ConfigurationError

_PORT = 9083


@dataclass(frozen=True, slots=True)
class Kerberos:
    """The Kerberos authentication of a connection.

    :param service: first part of the metastore's principal, such as ``hive`` in ``hive/host@REALM``.
    """

    service: str = "hive"


@dataclass(frozen=True, slots=True)
class MetastoreAccess:
    """The address of a metastore, time-outs and authentication.

    :param uris: ``thrift://host:port`` addresses separated by commas, tried in this order.
    :param timeout_s: seconds to wait for a connection, and for each answer.
    :param kerberos: ``None`` for a metastore without authentication.
    """

    uris: str
    timeout_s: float = 10.0
    kerberos: Kerberos | None = None

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The host and port of each server.

        :raises ConfigurationError: if an address is invalid or missing.
        """
        return [_address(uri.strip()) for uri in self.uris.strip(" ,").split(",")]

    def is_same_service(self, uris: str) -> bool:
        """Whether other addresses have a server in common with these.

        :param uris: of a metastore; empty for none.
        """
        try:
            others = replace(self, uris=uris).addresses
        except ConfigurationError:  # what uses them says so
            return False
        return not set(self.addresses).isdisjoint(others)


def _address(uri: str) -> tuple[str, int]:
    parts = urlsplit(uri if "://" in uri else f"thrift://{uri}")
    with suppress(ValueError):
        if parts.scheme == "thrift" and parts.hostname and not parts.path.strip("/"):
            return parts.hostname, parts.port or _PORT
    raise ConfigurationError(
        "uris", f"{uri!r} is not an address of a metastore", remedy=f"enter thrift://host:{_PORT}"
    )
