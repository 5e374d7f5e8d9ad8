"""The access to ZooKeeper: its servers, credentials, time-outs and TLS."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from airflow_occ_provider.errors import ConfigurationError

_DEFAULT_PORT = 2181
_PORT = re.compile(r":\d+(?:/|$)")
# A word before "://", or another separator than a comma, would be a server or a part of the chroot.
_SERVER = re.compile(r"(?:[\w.-]+|\[[\da-f:.]+(?:%[\w.-]+)?\])(?::\d+)?", re.IGNORECASE)


def connect_string(hosts: str, port: int | None = None) -> str:
    """Return the servers with a port each, and the chroot if there is one.

    Hudi's provider reads no separate port, so that each server's belongs in the list.

    :param hosts: servers separated by commas, with an optional chroot at the end.
    :param port: of the servers that name none.
    :raises ValueError: if this is no list of servers, or the port contradicts it.
    """
    servers, slash, chroot = (part.strip() for part in hosts.partition("/"))
    if slash and ("," in chroot or _PORT.search(chroot)):
        raise ValueError("a server or a port stands after the chroot, which is the last part")
    written = [_server(server.strip()) for server in servers.split(",")]
    if port and any(own_port not in (None, port) for _, own_port in written):
        raise ValueError(f"the servers name ports of their own beside the port {port}")
    with_ports = [(host, own_port or port) for host, own_port in written]
    named = ",".join(f"{host}:{number}" if number else host for host, number in with_ports)
    from kazoo.hosts import collect_hosts  # late: most processes need no client

    collected, _ = collect_hosts(named)
    chroot = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
    return ",".join(_text(host, number) for host, number in collected) + chroot


def is_one_ensemble(hosts: str, others: str) -> bool:
    """Whether two connect strings have a server and the chroot in common."""
    (servers, chroot), (other_servers, other_chroot) = map(_parts, (hosts, others))
    return chroot == other_chroot and not servers.isdisjoint(other_servers)


def _parts(hosts: str) -> tuple[frozenset[str], str]:
    """Return the servers of a connect string, each with its port, and the chroot."""
    servers, _, chroot = hosts.partition("/")
    names = (server.strip().lower() for server in servers.split(","))
    with_ports = (name if _PORT.search(name) else f"{name}:{_DEFAULT_PORT}" for name in names)
    return frozenset(with_ports), chroot.strip("/ ")


def _server(text: str) -> tuple[str, int | None]:
    """Return a server's name, in brackets if it is an address of IPv6, and its own port."""
    if not _SERVER.fullmatch(text):
        raise ValueError(f"{text!r} is not a server, such as zk1:2181")
    url = urlsplit(f"zk://{text}")
    host = str(url.hostname)
    return (f"[{host}]" if ":" in host else host), url.port


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Tls:
    """The TLS settings of a connection.

    :param ca: path of the CA certificates; empty for those of the system.
    :param certificate: path of the client certificate, if the server requires one.
    :param key: path of its key; empty if the certificate's file contains it.
    :param verify: whether the server's certificate and host name are verified.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the SSL context of the connection.

        :raises ConfigurationError: if a file cannot be used.
        """
        with _usable("tls_ca", self.ca):
            context = ssl.create_default_context(cafile=self.ca or None)
        if self.certificate:
            key = self.key or self.certificate
            with _usable("tls_certificate, tls_key", f"{self.certificate} with {key}"):
                # Without a password, OpenSSL would prompt for one at the terminal.
                context.load_cert_chain(self.certificate, key, password="")
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class ZookeeperAccess:
    """The addresses of ZooKeeper, credentials and time-outs.

    :param hosts: ``host:port`` pairs separated by commas, with an optional chroot.
    :param timeout_s: seconds to wait for the connection, and for each answer.
    :param login: of the digest scheme; only this login can use the nodes that it creates.
    :param tls: ``None`` for an unencrypted connection.
    """

    hosts: str
    timeout_s: float = 10.0
    login: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None
    sessions: list[Any] = field(default_factory=list, init=False, compare=False, repr=False)
    """Of the client, which what uses this value at the same time shares."""


@contextmanager
def _usable(field_name: str, files: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            field_name,
            f"{files} cannot be used for TLS: {error_name(error)}",
            remedy="use PEM files that this process can read, with an unencrypted key",
        ) from error


def error_name(error: Exception) -> str:
    """Return an error's class, and its text if it has any."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
