"""How kazoo's connections are made and logged: encrypted our way, failures kept, secrets left out."""

from __future__ import annotations

import logging
import socket
import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Auth

LOG = logging.getLogger(__name__)
LOG.setLevel(logging.WARNING)  # a task's log is not the place for every connection that is made
# At level DEBUG kazoo logs every message that it sends, that with the password too.
LOG.addFilter(lambda record: not any(isinstance(arg, Auth) for arg in record.args or ()))


class Wire(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Makes connections, and remembers why the last one failed, which kazoo only logs.

    :param context: of TLS, which checks the server's name too; ``None`` for connections in clear.
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
        """Connect to one server, within the time-out."""
        try:
            made: socket.socket = super().create_connection(address, timeout=timeout)
            if self._context:
                made = self._context.wrap_socket(made, server_hostname=hostname or address[0])
        except OSError as error:
            self.failure = error
            raise
        self.failure = None
        return made
