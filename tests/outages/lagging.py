"""A ZooKeeper of three servers, whose traffic from the leader to one follower can be held back."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from tests.services.ensemble import EmbeddedZookeeperEnsemble

_CHUNK = 65536
_POLL_S = 0.02


class Proxy:
    """Forwards a loopback port; what comes back from it arrives ``delay_s`` later."""

    def __init__(self, port: int) -> None:
        self.delay_s = 0.0
        self._target = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    client.close()
                    continue
                self._open += [client, server]
                late: queue.Queue[tuple[float, bytes]] = queue.Queue()
                for run, *ends in (
                    (self._forward, client, server),
                    (self._collect, server, late),
                    (self._deliver, late, client),
                ):
                    threading.Thread(target=run, args=ends, daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK):
                server.sendall(data)
        _end(server)

    def _collect(self, server: socket.socket, late: queue.Queue[tuple[float, bytes]]) -> None:
        with suppress(OSError):
            while data := server.recv(_CHUNK):
                late.put((time.monotonic(), data))
        late.put((time.monotonic(), b""))

    def _deliver(self, late: queue.Queue[tuple[float, bytes]], client: socket.socket) -> None:
        with suppress(OSError):
            while True:
                came_s, data = late.get()
                while time.monotonic() < came_s + self.delay_s:
                    time.sleep(_POLL_S)
                if not data:
                    break
                client.sendall(data)
        _end(client)


class LaggingEnsemble(EmbeddedZookeeperEnsemble):
    """Three servers, each of which reaches the other two through proxies of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._proxies: dict[tuple[int, int], Proxy] = {}
        self._stack = ExitStack()
        for number, server in enumerate(self.servers, 1):
            self._detour(number, server)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stack.close()

    def __enter__(self) -> Self:
        super().__enter__()
        modes = [server.mode for server in self.servers]
        self.leader = self.servers[modes.index("leader")]
        self.follower = self.servers[modes.index("follower")]
        return self

    def hold_back(self, seconds: float) -> None:
        """Delay all that the leader sends to the follower by so many seconds."""
        ends = tuple(self.servers.index(one) + 1 for one in (self.follower, self.leader))
        self._proxies[ends].delay_s = seconds

    def _detour(self, number: int, server: EmbeddedZookeeper) -> None:
        votes = dict(server._settings)
        for other in {1, 2, 3} - {number}:
            host, quorum, election = str(votes[f"server.{other}"]).split(":")
            self._proxies[number, other] = proxy = Proxy(int(quorum))
            self._stack.callback(proxy.close)
            votes[f"server.{other}"] = f"{host}:{proxy.port}:{election}"
        server._settings = votes


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
