"""An object store during a ``with`` block, and how Spark and Airflow use it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from airflow_occ_provider.embedded.bundle import resolve_jars
from airflow_occ_provider.embedded.service import EmbeddedService

HADOOP_VERSION = "3.3.4"


class EmbeddedObjectStore(EmbeddedService):
    """A server of an object store, on a free loopback port.

    :param folder: folder of its files.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    """

    SCHEME: ClassVar[str]
    """The scheme of its tables in Hadoop."""

    @abstractmethod
    def make_bucket(self, name: str) -> None:
        """Make a bucket."""

    def table(self, bucket: str, path: str) -> str:
        """Return the URL of a table in a bucket, as Hadoop spells it."""
        return f"{self.SCHEME}://{bucket}/{path}"

    @property
    @abstractmethod
    def spark_settings(self) -> Mapping[str, str]:
        """What a driver's Spark must be told, as ``spark.hadoop.*`` settings."""

    @abstractmethod
    def jars(self) -> tuple[Path, ...]:
        """Return the jars that a driver needs beside Spark's own, from the cache or Maven."""

    @property
    @abstractmethod
    def connection(self) -> dict[str, Any]:
        """The Airflow connection of a reader, as fields."""

    @property
    @abstractmethod
    def environment(self) -> Mapping[str, str]:
        """The variables by which a process reads it with its own credentials."""


class EmbeddedS3(EmbeddedObjectStore):
    """A server of S3's API, for path-style requests."""

    SCHEME = "s3a"
    KEY, SECRET, REGION = "embedded", "embedded-secret", "us-east-1"

    @property
    def url(self) -> str:
        """The address of its API. Clients take ``localhost`` for a part of a name."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """What a driver's Spark must be told."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.url,
            "spark.hadoop.fs.s3a.endpoint.region": self.REGION,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.access.key": self.KEY,
            "spark.hadoop.fs.s3a.secret.key": self.SECRET,
        }

    def jars(self) -> tuple[Path, ...]:
        """Return Hadoop's S3A connector and Amazon's SDK."""
        modules = (
            ("org.apache.hadoop", "hadoop-aws", HADOOP_VERSION),
            ("com.amazonaws", "aws-java-sdk-bundle", "1.12.262"),
        )
        return tuple(sorted(resolve_jars(f"hadoop-aws-{HADOOP_VERSION}", (), alone=modules).iterdir()))

    @property
    def connection(self) -> dict[str, Any]:
        """The Airflow connection of a reader."""
        extra = {"endpoint_url": self.url, "region_name": self.REGION}
        return {"conn_type": "aws", "login": self.KEY, "password": self.SECRET, "extra": extra}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which a process reads it with its own credentials."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.KEY,
            "AWS_SECRET_ACCESS_KEY": self.SECRET,
            "AWS_DEFAULT_REGION": self.REGION,
        }
