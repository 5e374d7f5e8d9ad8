"""A real Livy server on a free loopback port, from Maven, in front of PySpark 3.5."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.bundle import resolve_jars
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from airflow_occ_provider.embedded.service import EmbeddedService
from airflow_occ_provider.embedded.spark import spark_environment

LIVY_VERSION = "0.7.1-incubating"
_ANSWER_TIMEOUT_S = 5.0
_LOG4J = """
log4j.rootCategory=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss} %p %c{1}: %m%n
"""


class EmbeddedLivy(EmbeddedService):
    """A Livy server during a ``with`` block; its batches run PySpark with Hudi.

    It runs each batch as a ``spark-submit`` of its own in client mode. They end with it. Its first
    start downloads 80 MB from Maven.

    :param folder: folder of its files, and of Spark's.
    :param master: the Spark master of its batches.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    :param hudi_version: release of Hudi's bundle, see ``find_bundle``.
    :param readable: the local folder whose files a batch may name; by default every one.
    :param settings: further lines of its configuration.
    """

    _NAME = "Livy"
    _LOG = "livy.log"

    def __init__(
        self,
        folder: Path,
        master: str = "local[2]",
        port: int | None = None,
        *,
        hudi_version: str | None = None,
        readable: Path = Path("/"),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(folder, port)
        self.master = master
        self._hudi_version = hudi_version
        self._readable = readable
        self._settings = settings or {}

    @property
    def url(self) -> str:
        """The address of its REST API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection to it, as fields."""
        return {"conn_type": "livy", "host": "127.0.0.1", "port": self.port, "schema": "http"}

    def _command(self) -> list[str]:
        conf = self.folder / "conf"
        conf.mkdir(exist_ok=True)
        lines = {**self._own_settings(), **self._settings}
        (conf / "livy.conf").write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
        (conf / "log4j.properties").write_text(_LOG4J)
        server = ("org.apache.livy", "livy-server", LIVY_VERSION)
        jars = resolve_jars(f"livy-server-{LIVY_VERSION}", [server])
        opened = (f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "net"))
        return [
            str(find_java_home() / "bin" / "java"),
            *("-Xmx256m", *SHORT_LIVED, *opened),
            *("-cp", os.pathsep.join([str(conf), str(jars / "*")])),
            "org.apache.livy.server.LivyServer",
        ]

    def _variables(self) -> Mapping[str, str]:
        return {
            **spark_environment(self.folder / "spark", self._hudi_version),
            "LIVY_HOME": str(self.folder),
            "LIVY_CONF_DIR": str(self.folder / "conf"),
            "LIVY_LOG_DIR": str(self.folder),
        }

    def _own_settings(self) -> dict[str, object]:
        return {
            "livy.server.host": "127.0.0.1",
            "livy.server.port": self.port,
            "livy.spark.master": self.master,
            "livy.file.local-dir-whitelist": f"{str(self._readable).rstrip('/')}/",
            "livy.server.session.timeout-check": "false",
        }

    def _answers(self) -> bool:
        try:
            address = f"{self.url}/batches"
            urllib.request.urlopen(address, timeout=_ANSWER_TIMEOUT_S).close()  # noqa: S310
        except OSError:
            return False
        return True
