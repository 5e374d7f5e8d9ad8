"""A real S3 server on a free loopback port: versitygw, built by Go."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from airflow_occ_provider.embedded.object_store import EmbeddedS3
from tests.services.go_program import GoProgram

VERSION = "1.8.0"
_PROGRAM = GoProgram("github.com/versity/versitygw/cmd/versitygw", VERSION)
_ANSWER_TIMEOUT_S = 5.0


class EmbeddedVersitygw(EmbeddedS3):
    """An S3 server over a folder during a ``with`` block; a bucket is a folder in it.

    Its conditional writes are exact. The first start builds it, in some minutes of two cores.

    :param folder: folder of its files; it must be on a file system with extended attributes.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    """

    _NAME = "versitygw"
    _LOG = "versitygw.log"

    @staticmethod
    def is_available() -> bool:
        """Whether it is built, or can be: Go is on the PATH."""
        return _PROGRAM.is_available()

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """What a driver's Spark must be told; folders keep their markers."""
        kept = {"spark.hadoop.fs.s3a.directory.marker.retention": "keep"}
        return {**super().spark_settings, **kept}

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        (self.folder / "buckets" / name).mkdir(parents=True, exist_ok=True)

    def _variables(self) -> Mapping[str, str]:
        return {**os.environ, "ROOT_ACCESS_KEY": self.KEY, "ROOT_SECRET_KEY": self.SECRET}

    def _command(self) -> list[str]:
        buckets = self.folder / "buckets"
        buckets.mkdir(exist_ok=True)
        address = f"127.0.0.1:{self.port}"
        return [str(_PROGRAM.build()), "--port", address, "--region", self.REGION, "posix", str(buckets)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), _ANSWER_TIMEOUT_S):
                return True
        except OSError:
            return False
