"""An HDFS of one NameNode and one DataNode, from Maven's jars of the release of Spark's client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from airflow_occ_provider.embedded.bundle import resolve_jars
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from airflow_occ_provider.embedded.object_store import HADOOP_VERSION, EmbeddedObjectStore
from airflow_occ_provider.embedded.ports import free_port
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.service import EmbeddedService

_HADOOP = "org.apache.hadoop"
_NAME_NODE = f"{_HADOOP}.hdfs.server.namenode.NameNode"
_DATA_NODE = f"{_HADOOP}.hdfs.server.datanode.DataNode"
_STATE = "jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
_FORMAT_TIMEOUT_S, _ANSWER_TIMEOUT_S = 120, 10
_LOG4J = """log4j.rootLogger=INFO, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


class Hdfs(EmbeddedObjectStore):
    """An HDFS during a ``with`` block, without permissions; a bucket is a folder of its root."""

    SCHEME = "hdfs"
    _NAME = "The NameNode"
    _LOG = "namenode.log"

    def __init__(self, folder: Path, port: int | None = None) -> None:
        super().__init__(folder, port)
        self._web_port = 0
        self._data_node = _DataNode(folder, self)

    @property
    def url(self) -> str:
        return f"{self.SCHEME}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start both servers and return when files can be written."""
        super().start()
        try:
            self._data_node.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        self._data_node.stop()
        super().stop()

    def make_bucket(self, name: str) -> None:
        from hdfs_native import Client

        Client(self.url).mkdirs(f"/{name}")

    def table(self, bucket: str, path: str) -> str:
        return f"{self.url}/{bucket}/{path}"

    @property
    def spark_settings(self) -> Mapping[str, str]:
        return {"spark.hadoop.dfs.replication": "1"}

    def jars(self) -> tuple[Path, ...]:
        return ()  # Spark's own jars have the client

    @property
    def connection(self) -> dict[str, Any]:
        return {}

    @property
    def environment(self) -> Mapping[str, str]:
        return {}  # the URL of a table is enough

    def state(self) -> dict[str, Any]:
        """Return what the NameNode says of itself; empty if it does not answer."""
        address = f"http://127.0.0.1:{self._web_port}/{_STATE}"
        with suppress(OSError, ValueError), urlopen(address, timeout=_ANSWER_TIMEOUT_S) as answer:
            return next(iter(json.load(answer)["beans"]), {})
        return {}

    def command(self, main: str, *arguments: str) -> list[str]:
        """Return the command of a class of Hadoop, with the settings of this HDFS."""
        path = os.pathsep.join([str(self.folder), str(_jars() / "*")])
        opened = (f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in ("lang", "util"))
        settings = (f"-D{name}={value}" for name, value in self._settings().items())
        return [
            str(find_java_home() / "bin" / "java"),
            *("-Xmx256m", *SHORT_LIVED, *opened, f"-Dhadoop.log.dir={self.folder}"),
            *("-cp", path, main, *settings, *arguments),
        ]

    def _settings(self) -> dict[str, object]:
        name, data = "dfs.namenode", "dfs.datanode"
        return {
            "fs.defaultFS": self.url,
            "hadoop.tmp.dir": self.folder / "tmp",
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            f"{name}.http-address": f"127.0.0.1:{self._web_port}",
            f"{name}.name.dir": (self.folder / "name").as_uri(),
            f"{name}.safemode.extension": 0,
            f"{data}.hostname": "localhost",
            f"{data}.data.dir": (self.folder / "data").as_uri(),
            **{f"{data}.{one}address": "127.0.0.1:0" for one in ("", "http.", "ipc.")},
        }

    def _command(self) -> list[str]:
        self._web_port = free_port()
        (self.folder / "log4j.properties").write_text(_LOG4J)
        for one in ("hdfs", "datanode"):  # pages that the servers look for, and the jars do not have
            (self.folder / "webapps" / one).mkdir(parents=True, exist_ok=True)
        if not (self.folder / "name").exists():
            self._format()
        return self.command(_NAME_NODE)

    def _format(self) -> None:
        done = subprocess.run(
            self.command(_NAME_NODE, "-format", "-nonInteractive"),
            capture_output=True,
            text=True,
            check=False,
            timeout=_FORMAT_TIMEOUT_S,
        )
        if done.returncode:
            raise EmbeddedError(f"{self._NAME} was not formatted: {done.stderr[-1000:]}")

    def _answers(self) -> bool:
        return bool(self.state())


class _DataNode(EmbeddedService):
    """The server of the blocks; its ports are chosen by the system."""

    _NAME = "The DataNode"
    _LOG = "datanode.log"

    def __init__(self, folder: Path, hdfs: Hdfs) -> None:
        super().__init__(folder)
        self._hdfs = hdfs

    def _command(self) -> list[str]:
        return self._hdfs.command(_DATA_NODE)

    def _answers(self) -> bool:
        state = self._hdfs.state()
        return bool(state.get("NumLiveDataNodes")) and state.get("FSState") == "Operational"


def _jars() -> Path:
    wanted = [(_HADOOP, one, HADOOP_VERSION) for one in ("hadoop-hdfs", "hadoop-common")]
    alone = [(_HADOOP, "hadoop-hdfs-client", HADOOP_VERSION)]
    return resolve_jars(f"hdfs-{HADOOP_VERSION}", wanted, alone=alone)
