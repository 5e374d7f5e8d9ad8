"""A real ZooKeeper on a free loopback port, from the jars that PySpark carries."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Self

from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.process import EmbeddedError, Server, free_port, refuse_busy_port

_START_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 1.0
_PORT_TRIES = 3


class EmbeddedZookeeper:
    """A ZooKeeper server for the time of a ``with`` block.

    :param folder: where it keeps its data and its log.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or 0
        self._fixed = port is not None
        self._server: Server | None = None

    @property
    def hosts(self) -> str:
        """The connect string."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and return when it answers.

        :raises EmbeddedError: if it does not; nothing is left running then.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._fixed:
            refuse_busy_port("ZooKeeper", self.port)
        for left in reversed(range(1 if self._fixed else _PORT_TRIES)):
            if not self._fixed:
                self.port = free_port()
            try:
                self._start_once()
            except EmbeddedError as error:
                if not left or "Address already in use" not in str(error):
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop it; safe to repeat. Its data stay."""
        if self._server:
            self._server.stop()
            self._server = None

    def _start_once(self) -> None:
        configuration = self.folder / "zoo.cfg"
        configuration.write_text(
            f"clientPort={self.port}\nclientPortAddress=127.0.0.1\ndataDir={self.folder / 'data'}\n"
            "tickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=120000\nmaxClientCnxns=0\n"
            "admin.enableServer=false\n4lw.commands.whitelist=*\n"
        )
        server = Server(
            "ZooKeeper",
            [
                str(find_java_home() / "bin" / "java"),
                *("-Xmx128m", "-cp", str(pyspark_home() / "jars" / "*")),
                *("org.apache.zookeeper.server.ZooKeeperServerMain", str(configuration)),
            ],
            os.environ,
            self.folder / "zookeeper.log",
        )
        try:
            server.wait_until(self._answers, _START_TIMEOUT_S)
        except BaseException:
            server.stop()
            raise
        self._server = server

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), _ANSWER_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
                return b"Mode: " in answer  # "ruok" is answered before sessions are served
        except OSError:
            return False
