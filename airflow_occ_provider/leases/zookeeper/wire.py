"""The connections of kazoo: TLS, the last failure, and a log without secrets."""

from __future__ import annotations

import logging
import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Auth

LOG = logging.getLogger(__name__)
LOG.setLevel(logging.WARNING)  # no task log line for every connection
# At level DEBUG kazoo logs every message that it sends, also the password.
LOG.addFilter(lambda record: not any(isinstance(arg, Auth) for arg in record.args or ()))


class Wire(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A kazoo handler that opens connections and keeps the last failure.

    :param context: for TLS, including the check of the server's name; ``None`` for no encryption.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._context = context
        self.failure: OSError | None = None

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> socket.socket:
        """Connect to one server within the time-out."""
        try:
            connection: socket.socket = super().create_connection(address, timeout=timeout)
            if self._context:
                connection = self._context.wrap_socket(
                    connection, server_hostname=hostname or address[0]
                )
        except OSError as error:
            self.failure = error
            raise
        self.failure = None
        return connection
