"""Loopback ports for embedded services."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

from airflow_occ_provider.embedded.process import EmbeddedError

# Below the ports that Linux and macOS give to outgoing connections: such a connection would take a
# port between its choice here and the moment when a slow service binds it.
_PORTS = range(20000, 32768)
_HOST = "127.0.0.1"


def free_port() -> int:
    """Return a loopback port that is free now."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different loopback ports that are free now.

    :raises EmbeddedError: if there are not so many.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            if len(ports) == count:
                return ports
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind((_HOST, port))
                ports.append(port)
    raise EmbeddedError(f"fewer than {count} free ports from {_PORTS.start} to {_PORTS.stop - 1}")


def refuse_busy_port(name: str, port: int) -> None:
    """Refuse a loopback port that is in use.

    :raises EmbeddedError: if the port is in use; it names the port.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise EmbeddedError(
                f"{name}: port {port} on {_HOST} cannot be used ({error.strerror}). Free it, or omit "
                "the port to use a free one"
            ) from error
