"""A real YARN on free loopback ports: a ResourceManager and a NodeManager."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from airflow_occ_provider.embedded.bundle import pyspark_home, resolve_jars
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.service import EmbeddedService
from tests.services.yarn_conf import spark_conf, write_configuration

_ANSWER_TIMEOUT_S = 10.0
_HADOOP = "org.apache.hadoop"
_SERVER = f"{_HADOOP}.yarn.server"


class _Daemon(EmbeddedService):
    """One of the two servers; both read the configuration in one folder."""

    _MAIN: str

    @property
    def pid(self) -> int:
        """The process id of its JVM."""
        command = self._command() if self._server else None
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if process.cmdline() == command:
                    return int(process.pid)
        raise EmbeddedError(f"{self._NAME} is not running")

    def _variables(self) -> Mapping[str, str]:
        return {**os.environ, "JAVA_HOME": str(find_java_home())}

    def _command(self) -> list[str]:
        opened = (f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in ("lang", "util"))
        path = os.pathsep.join([str(self.folder / "conf"), str(_jars() / "*")])
        return [
            str(find_java_home() / "bin" / "java"),
            *("-Xmx384m", *SHORT_LIVED, *opened, f"-Dhadoop.log.dir={self.folder}"),
            *("-cp", path, self._MAIN),
        ]


class _ResourceManager(_Daemon):
    _NAME = "The ResourceManager"
    _LOG = "resourcemanager.log"
    _MAIN = f"{_SERVER}.resourcemanager.ResourceManager"

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        super().__init__(folder)
        self._settings = settings

    def start(self) -> None:
        """Start it; after ``stop`` on the same ports, with its applications."""
        super().start()
        self._fixed = True

    @property
    def url(self) -> str:
        """The address of its web interface."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> Any:
        """Return its decoded answer; ``None`` if it does not answer."""
        return _answer(f"{self.url}/ws/v1/cluster/{path}")

    def _command(self) -> list[str]:
        if not self._fixed:
            write_configuration(self.folder, self.port, self._settings)
        return super()._command()

    def _answers(self) -> bool:
        found = self.get("info")
        return bool(found and found["clusterInfo"]["state"] == "STARTED")


class _NodeManager(_Daemon):
    _NAME = "The NodeManager"
    _LOG = "nodemanager.log"
    _MAIN = f"{_SERVER}.nodemanager.NodeManager"

    def __init__(self, folder: Path, manager: _ResourceManager) -> None:
        super().__init__(folder)
        self._manager = manager

    def _answers(self) -> bool:
        nodes = (self._manager.get("nodes") or {}).get("nodes") or {}
        running = (one for one in nodes.get("node", ()) if one["state"] == "RUNNING")
        return any(_answer(f"http://{one['nodeHTTPAddress']}/ws/v1/node/info") for one in running)


class EmbeddedYarn:
    """YARN with one node during a ``with`` block.

    It is for ``spark-submit`` in cluster mode. Its ResourceManager recovers applications after a
    restart. Its jars have the release of Hadoop that Spark's have.

    :param folder: folder of its configuration, state and logs.
    :param settings: further properties of its ``yarn-site.xml``.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self._manager = _ResourceManager(folder, settings or {})
        self._node = _NodeManager(folder, self._manager)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def resource_manager(self) -> str:
        """The address of the ResourceManager's web interface."""
        return self._manager.url

    @property
    def resource_manager_pid(self) -> int:
        """The process id of the ResourceManager."""
        return self._manager.pid

    @property
    def node_manager_pid(self) -> int:
        """The process id of the NodeManager."""
        return self._node.pid

    def start(self) -> None:
        """Start both and return when the node can run containers.

        :raises EmbeddedError: if one does not answer; then nothing is left running.
        """
        self._manager.start()
        try:
            self._node.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop both with all containers; safe to repeat. Their files stay."""
        self._node.stop()  # a NodeManager without its ResourceManager does not end
        self._manager.stop()

    def restart_resource_manager(self) -> None:
        """Restart the ResourceManager on its ports; return when the node is back."""
        self._manager.stop()
        self._manager.start()
        self._node.wait()

    def restart_node_manager(self) -> None:
        """Restart the NodeManager on its ports; return when it is back."""
        self._node.stop()
        self._node.start()

    def environment(self, spark: Mapping[str, str]) -> dict[str, str]:
        """Return an environment in which ``spark-submit`` finds this YARN.

        :param spark: an environment for ``spark-submit``, for example from ``spark_environment``. Of its
            configuration only the jars are kept, which are not uploaded.
        """
        defaults = self.folder / "spark" / "spark-defaults.conf"
        defaults.parent.mkdir(parents=True, exist_ok=True)
        lines = spark_conf(self.folder, spark).items()
        defaults.write_text("".join(f"{key} {value}\n" for key, value in lines))
        hadoop = str(self.folder / "conf")
        own = {"SPARK_CONF_DIR": str(defaults.parent), "HADOOP_CONF_DIR": hadoop}
        return {**spark, **own, "YARN_CONF_DIR": hadoop}


def _answer(address: str) -> Any:
    """Return what a server answers, decoded; ``None`` if it does not answer."""
    timeout_s = _ANSWER_TIMEOUT_S
    with suppress(OSError, ValueError), urllib.request.urlopen(address, timeout=timeout_s) as answer:  # noqa: S310
        return json.load(answer)
    return None


def _jars() -> Path:
    """Return the folder of both servers' jars, of the release of Spark's client."""
    prefix = "hadoop-client-api-"
    client = next((pyspark_home() / "jars").glob(f"{prefix}*.jar"), None)
    if client is None:
        raise EmbeddedError(f"Spark at {pyspark_home()} has no jar {prefix}*, so no YARN client")
    version = client.stem.removeprefix(prefix)
    wanted = ("hadoop-yarn-server-resourcemanager", "hadoop-yarn-server-nodemanager", "hadoop-common")
    # The ResourceManager's web pages need one class of this jar, and nothing that the jar needs.
    alone = (_HADOOP, "hadoop-yarn-server-timelineservice", version)
    return resolve_jars(f"yarn-{version}", [(_HADOOP, one, version) for one in wanted], alone=[alone])
