"""A real ZooKeeper on a free loopback port, from Spark's jars."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.embedded.certificates import Certificates
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from airflow_occ_provider.embedded.process import EmbeddedError, Server, free_port, refuse_busy_port

_START_TIMEOUT_S = 300.0
_ANSWER_TIMEOUT_S = 1.0
_PORT_TRIES = 3


class EmbeddedZookeeper:
    """A ZooKeeper server during a ``with`` block.

    :param folder: folder of its data and log.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    :param certificates: if given, it also listens on ``secure_hosts`` and requires client certificates.
    :param settings: further lines of its configuration.
    """

    def __init__(
        self,
        folder: Path,
        port: int | None = None,
        *,
        certificates: Certificates | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = folder
        self.port = port or 0
        self.secure_port = 0
        self._fixed = port is not None
        self._certificates = certificates
        self._settings = settings or {}
        self._server: Server | None = None

    @property
    def hosts(self) -> str:
        """The connect string."""
        return f"127.0.0.1:{self.port}"

    @property
    def secure_hosts(self) -> str:
        """The connect string for TLS connections."""
        return f"127.0.0.1:{self.secure_port}"

    @property
    def mode(self) -> str:
        """The mode: ``standalone``, ``leader`` or ``follower``; empty if not ready."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), _ANSWER_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")  # "ruok" is answered before sessions are served
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return ""
        return answer.partition(b"Mode: ")[2].partition(b"\n")[0].decode()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and return when it answers.

        :raises EmbeddedError: if it does not answer; then nothing is left running.
        """
        for left in reversed(range(1 if self._fixed else _PORT_TRIES)):
            try:
                self.launch()
                self.wait()
            except EmbeddedError as error:
                if not left or "Address already in use" not in str(error):
                    raise
            else:
                return

    def launch(self) -> None:
        """Start it without waiting for it.

        :raises EmbeddedError: if its port is in use.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._fixed:
            refuse_busy_port("ZooKeeper", self.port)
        else:
            self.port = free_port()
        configuration = self.folder / "zoo.cfg"
        lines = {**self._own_settings(), **self._secure_settings(), **self._settings}
        configuration.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._server = Server(
            "ZooKeeper",
            [
                str(find_java_home() / "bin" / "java"),
                *("-Xmx128m", *SHORT_LIVED, "-cp", str(pyspark_home() / "jars" / "*")),
                *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)),
            ],
            os.environ,
            self.folder / "zookeeper.log",
        )

    def wait(self) -> None:
        """Wait until it answers.

        :raises EmbeddedError: if it does not answer; then it is stopped.
        """
        if self._server is None:
            raise EmbeddedError("ZooKeeper was not started")
        try:
            self._server.wait_until(self._answers, _START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop it; safe to repeat. Its data is kept."""
        if self._server:
            self._server.stop()
            self._server = None

    def _own_settings(self) -> dict[str, object]:
        return {
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "dataDir": self.folder / "data",
            "tickTime": 500,
            "minSessionTimeout": 1000,
            "maxSessionTimeout": 120000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }

    def _secure_settings(self) -> dict[str, object]:
        if self._certificates is None:
            return {}
        self.secure_port = free_port()
        return {
            "secureClientPort": self.secure_port,
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self._certificates.server,
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": self._certificates.ca,
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "need",
        }

    def _answers(self) -> bool:
        try:
            if self.secure_port:
                socket.create_connection(("127.0.0.1", self.secure_port), _ANSWER_TIMEOUT_S).close()
        except OSError:
            return False
        return bool(self.mode)
