"""A server of Google's storage API on a loopback port: fake-gcs-server."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.bundle import resolve_jar
from airflow_occ_provider.embedded.object_store import EmbeddedObjectStore
from airflow_occ_provider.embedded.process import EmbeddedError
from tests.services.go_program import GoProgram

VERSION = "1.56.1"
_PROGRAM = GoProgram("github.com/fsouza/fake-gcs-server", VERSION)
_CONNECTOR = ("com.google.cloud.bigdataoss", "gcs-connector", "hadoop3-2.2.22", "shaded")
_TIMEOUT_S = 5.0


class EmbeddedFakeGcs(EmbeddedObjectStore):
    """A server of GCS in memory during a ``with`` block; it knows no credentials.

    Its conditional writes are exact. The first start builds it, in a minute of two cores.

    :param folder: folder of its log.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    """

    SCHEME = "gs"
    PROJECT = "embedded"
    _NAME = "fake-gcs-server"
    _LOG = "fake_gcs.log"

    @staticmethod
    def is_available() -> bool:
        """Whether it is built, or can be: Go is on the PATH."""
        return _PROGRAM.is_available()

    @property
    def url(self) -> str:
        """The address of its API."""
        return f"http://127.0.0.1:{self.port}"

    def make_bucket(self, name: str) -> None:
        """Make a bucket.

        :raises EmbeddedError: if it is refused.
        """
        status, answer = self._ask("POST", f"/storage/v1/b?project={self.PROJECT}", {"name": name})
        if status not in (200, 409):
            raise EmbeddedError(f"{self._NAME} did not make the bucket {name}: {status} {answer!r}")

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """What a driver's Spark must be told."""
        connector = "com.google.cloud.hadoop.fs.gcs.GoogleHadoop"
        return {
            "spark.hadoop.fs.gs.impl": f"{connector}FileSystem",
            "spark.hadoop.fs.AbstractFileSystem.gs.impl": f"{connector}FS",
            "spark.hadoop.fs.gs.storage.root.url": f"{self.url}/",
            "spark.hadoop.fs.gs.project.id": self.PROJECT,
            "spark.hadoop.fs.gs.auth.service.account.enable": "false",
            "spark.hadoop.fs.gs.auth.null.enable": "true",
            "spark.hadoop.fs.gs.http.max.retry": "2",
        }

    def jars(self) -> tuple[Path, ...]:
        """Return Google's connector for Hadoop."""
        return (resolve_jar(*_CONNECTOR),)

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection of a reader."""
        extra = {"project": self.PROJECT, "is_anonymous": True, "gcs.endpoint": self.url}
        return {"conn_type": "google_cloud_platform", "extra": extra}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which a process reads it, without credentials."""
        return {"STORAGE_EMULATOR_HOST": self.url}

    def _command(self) -> list[str]:
        address = f"127.0.0.1:{self.port}"
        return [
            *(str(_PROGRAM.build()), "-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)),
            *("-external-url", self.url, "-public-host", address, "-log-level", "warn"),
            *("-backend", "memory"),  # its file system backend loses empty objects, which mark folders
        ]

    def _answers(self) -> bool:
        try:
            return self._ask("GET", f"/storage/v1/b?project={self.PROJECT}")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def _ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)
        try:
            asked.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
            answer = asked.getresponse()
            return answer.status, answer.read()
        finally:
            asked.close()
