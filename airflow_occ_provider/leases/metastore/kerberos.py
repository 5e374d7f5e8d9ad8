"""Kerberos on the connection to a metastore: what thrift-sasl asks of a client, by pure-sasl."""

from __future__ import annotations

from typing import Any

from puresasl.client import SASLClient
from thrift_sasl import TSaslClientTransport

_MECHANISM = "GSSAPI"


class _Client(SASLClient):  # type: ignore[misc]
    """Whatever fails, such as a ticket that is not there, is told by ``getError``."""

    _failure = ""

    def start(self, mechanism: str) -> tuple[bool, str, bytes | None]:
        """Return the first message."""
        try:
            self.choose_mechanism([mechanism])
            return True, mechanism, self.process()
        except Exception as error:  # noqa: BLE001 - Kerberos raises classes of its own
            self._failure = f"{type(error).__name__}: {error}"
            return False, mechanism, None

    def step(self, challenge: bytes) -> tuple[bool, bytes | None]:
        """Return the answer to a message."""
        try:
            return True, self.process(challenge)
        except Exception as error:  # noqa: BLE001
            self._failure = f"{type(error).__name__}: {error}"
            return False, None

    def encode(self, data: bytes) -> tuple[bool, bytes]:
        """Return what is sent."""
        return True, self.wrap(data)

    def decode(self, data: bytes) -> tuple[bool, bytes]:
        """Return what was received."""
        return True, self.unwrap(data)

    def getError(self) -> str:  # noqa: N802 - thrift-sasl's name
        """Return what failed."""
        return self._failure


def authenticated(connection: Any, host: str, service: str) -> Any:
    """Return a transport that shows this machine's Kerberos ticket.

    :param connection: Thrift's socket.
    :param host: the metastore's.
    :param service: first part of its principal.
    """
    return TSaslClientTransport(lambda: _Client(host, service=service), _MECHANISM, connection)
