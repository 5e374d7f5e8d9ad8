"""A forwarder on loopback that counts connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

_PIECE = 64 * 1024


class CountedConnections:
    """Forwards connections to a server during a ``with`` block, and counts them.

    :param target: ``host:port`` of the server.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.number = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for connection in (self._server, *self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                self.number += 1
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._open += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=_forward, args=ends, daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
