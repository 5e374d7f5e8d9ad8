"""Kerberos for metastore connections, with pure-sasl and thrift-sasl."""

from __future__ import annotations

from typing import Any

from puresasl.client import SASLClient
from thrift_sasl import TSaslClientTransport

_MECHANISM = "GSSAPI"


class _KerberosClient(SASLClient):  # type: ignore[misc]
    """A SASL client whose failures, such as a missing ticket, ``getError`` returns."""

    _failure = ""

    def start(self, mechanism: str) -> tuple[bool, str, bytes | None]:
        """Return the first message."""
        try:
            self.choose_mechanism([mechanism])
            return True, mechanism, self.process()
        except Exception as error:  # noqa: BLE001 - Kerberos raises its own classes
            self._failure = f"{type(error).__name__}: {error}"
            return False, mechanism, None

    def step(self, challenge: bytes) -> tuple[bool, bytes | None]:
        """Return the response to a challenge."""
        try:
            return True, self.process(challenge)
        except Exception as error:  # noqa: BLE001
            self._failure = f"{type(error).__name__}: {error}"
            return False, None

    def encode(self, data: bytes) -> tuple[bool, bytes]:
        """Return the data to send."""
        return True, self.wrap(data)

    def decode(self, data: bytes) -> tuple[bool, bytes]:
        """Return the received data."""
        return True, self.unwrap(data)

    def getError(self) -> str:  # noqa: N802 - thrift-sasl's name
        """Return the failure as text."""
        return self._failure


def authenticated(connection: Any, host: str, service: str) -> Any:
    """Return a transport that authenticates with this machine's Kerberos ticket."""
    return TSaslClientTransport(lambda: _KerberosClient(host, service=service), _MECHANISM, connection)
