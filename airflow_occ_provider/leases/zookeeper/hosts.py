"""The servers of a ZooKeeper connection, as kazoo and Hudi's Curator read them."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from kazoo.hosts import collect_hosts

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
    collected, _ = collect_hosts(named)
    chroot = f"/{chroot.strip('/')}" if chroot.strip("/") else ""
    return ",".join(_text(host, number) for host, number in collected) + chroot


def _server(text: str) -> tuple[str, int | None]:
    """Return a server's name, in brackets if it is an address of IPv6, and its own port."""
    if not _SERVER.fullmatch(text):
        raise ValueError(f"{text!r} is not a server, such as zk1:2181")
    url = urlsplit(f"zk://{text}")
    host = str(url.hostname)
    return (f"[{host}]" if ":" in host else host), url.port


def _text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
