"""A real ZooKeeper on a free loopback port, from Spark's jars."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from airflow_occ_provider.embedded.service import EmbeddedService

_ANSWER_TIMEOUT_S = 1.0


class EmbeddedZookeeper(EmbeddedService):
    """A ZooKeeper server during a ``with`` block.

    :param folder: folder of its data and log.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    :param settings: further lines of its configuration.
    """

    _NAME = "ZooKeeper"
    _LOG = "zookeeper.log"

    def __init__(
        self, folder: Path, port: int | None = None, *, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(folder, port)
        self._settings = settings or {}

    @property
    def hosts(self) -> str:
        """The connect string."""
        return f"127.0.0.1:{self.port}"

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

    def _command(self) -> list[str]:
        configuration = self.folder / "zoo.cfg"
        lines = {**self._own_settings(), **self._settings}
        configuration.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return [
            str(find_java_home() / "bin" / "java"),
            *("-Xmx128m", *SHORT_LIVED, "-cp", str(pyspark_home() / "jars" / "*")),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)),
        ]

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

    def _answers(self) -> bool:
        return bool(self.mode)
