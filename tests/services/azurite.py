"""A server of Azure's blob API on a loopback port: Azurite, from npm."""

from __future__ import annotations

import base64
import contextlib
import hmac
import http.client
import os
import shutil
import tempfile
from collections.abc import Mapping
from email.utils import formatdate
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.bundle import cache_folder, resolve_jars
from airflow_occ_provider.embedded.object_store import HADOOP_VERSION, EmbeddedObjectStore
from airflow_occ_provider.embedded.process import EmbeddedError
from tests.services.installer import run_installer

VERSION = "3.35.0"
_SERVER = "node_modules/azurite/dist/src/blob/main.js"
_INSTALL_TIMEOUT_S = 900
_TIMEOUT_S = 5.0
_JETTY = "9.4.43.v20210629"


class EmbeddedAzurite(EmbeddedObjectStore):
    """A storage account of Azure during a ``with`` block; a bucket is a container.

    Its conditional writes are exact. It has no DFS endpoint, so Hadoop reads ``wasb://`` only, through a
    proxy setting of the JVM: the account's host exists for this server alone.

    :param folder: folder of its files.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    """

    SCHEME = "wasb"
    ACCOUNT, HOST = "embedded", "embedded.blob.localhost"
    KEY = base64.b64encode(b"the key of the embedded account").decode()
    _NAME = "Azurite"
    _LOG = "azurite.log"

    @staticmethod
    def is_available() -> bool:
        """Whether node is on the PATH, and Azurite is installed or npm is there to do it."""
        can_be_installed = _server().exists() or shutil.which("npm") is not None
        return can_be_installed and shutil.which("node") is not None

    @property
    def url(self) -> str:
        """The address of the account for clients that name it in the path."""
        return f"http://127.0.0.1:{self.port}/{self.ACCOUNT}"

    def make_bucket(self, name: str) -> None:
        """Make a container.

        :raises EmbeddedError: if it is refused.
        """
        status = self._ask("PUT", f"/{name}?restype=container", self._signed(name))
        if status not in (201, 409):
            raise EmbeddedError(f"Azurite did not make the container {name}: HTTP status {status}")

    def table(self, bucket: str, path: str) -> str:
        """Return the URL of a table in a container, as Hadoop spells it."""
        return f"{self.SCHEME}://{bucket}@{self.HOST}/{path}"

    @property
    def connection_string(self) -> str:
        """What Azure's clients are given; it has the account's key."""
        return (
            f"DefaultEndpointsProtocol=http;AccountName={self.ACCOUNT};AccountKey={self.KEY};"
            f"BlobEndpoint={self.url};"
        )

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """What a driver's Spark must be told."""
        proxy = f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={self.port}"
        return {
            "spark.driver.defaultJavaOptions": proxy,
            "spark.executor.defaultJavaOptions": proxy,
            f"spark.hadoop.fs.azure.account.key.{self.HOST}": self.KEY,
            "spark.hadoop.fs.wasb.impl": "org.apache.hadoop.fs.azure.NativeAzureFileSystem",
            "spark.hadoop.fs.AbstractFileSystem.wasb.impl": "org.apache.hadoop.fs.azure.Wasb",
        }

    def jars(self) -> tuple[Path, ...]:
        """Return Hadoop's WASB connector and what it needs beside Spark's jars."""
        modules = (
            ("org.apache.hadoop", "hadoop-azure", HADOOP_VERSION),
            ("com.microsoft.azure", "azure-storage", "7.0.1"),
            ("com.microsoft.azure", "azure-keyvault-core", "1.0.0"),
            ("org.eclipse.jetty", "jetty-util-ajax", _JETTY),
            ("org.eclipse.jetty", "jetty-util", _JETTY),
            ("org.codehaus.jackson", "jackson-mapper-asl", "1.9.13"),
            ("org.codehaus.jackson", "jackson-core-asl", "1.9.13"),
            ("org.wildfly.openssl", "wildfly-openssl", "1.0.7.Final"),
        )
        return tuple(sorted(resolve_jars(f"hadoop-azure-{HADOOP_VERSION}", (), alone=modules).iterdir()))

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection of a reader."""
        return {"conn_type": "wasb", "extra": {"connection_string": self.connection_string}}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which a process reads it with its own credentials."""
        return {"AZURE_STORAGE_CONNECTION_STRING": self.connection_string}

    def _variables(self) -> Mapping[str, str]:
        return {**os.environ, "AZURITE_ACCOUNTS": f"{self.ACCOUNT}:{self.KEY}"}

    def _command(self) -> list[str]:
        return [
            *("node", str(_installed()), "--location", str(self.folder / "blobs")),
            *("--blobHost", "127.0.0.1", "--blobPort", str(self.port)),
            *("--skipApiVersionCheck", "--silent", "--disableTelemetry", "--loose"),
        ]

    def _answers(self) -> bool:
        try:
            return self._ask("GET", "/?comp=list", {}) > 0  # refused: the request is not signed
        except (OSError, http.client.HTTPException):
            return False

    def _ask(self, method: str, path: str, headers: Mapping[str, str]) -> int:
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)
        try:
            asked.request(method, path, headers={"Host": self.HOST, **headers})
            answer = asked.getresponse()
            answer.read()
            return answer.status
        finally:
            asked.close()

    def _signed(self, container: str) -> dict[str, str]:
        """Return the headers of a request that makes a container, signed with the account's key."""
        own = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        lines = [f"{key}:{value}" for key, value in own.items()]
        resource = f"/{self.ACCOUNT}/{container}\nrestype:container"
        text = "\n".join(["PUT", *[""] * 11, *lines, resource])
        key = base64.b64decode(self.KEY)
        signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
        return {**own, "Authorization": f"SharedKey {self.ACCOUNT}:{signature}"}


def _server() -> Path:
    return cache_folder() / f"azurite-{VERSION}" / _SERVER


def _installed() -> Path:
    """Return the program, installed at the first time.

    :raises EmbeddedError: if node or npm is missing, or the installation fails.
    """
    if shutil.which("node") is None:
        raise EmbeddedError("Azurite runs in node, which is not on the PATH. Install Node.js 20")
    folder = cache_folder() / f"azurite-{VERSION}"
    if folder.exists():
        return folder / _SERVER
    if shutil.which("npm") is None:
        raise EmbeddedError("Azurite is installed by npm, which is not on the PATH. Install npm")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="install-") as scratch:
        made = Path(scratch, "azurite")
        _install(made)
        with contextlib.suppress(OSError):  # another process was faster: its folder is not empty
            made.rename(folder)
    return folder / _SERVER


def _install(folder: Path) -> None:
    command = ["npm", "install", "--prefix", str(folder), f"azurite@{VERSION}"]
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts")
    run_installer("Azurite", [*command, *quiet], _INSTALL_TIMEOUT_S)
