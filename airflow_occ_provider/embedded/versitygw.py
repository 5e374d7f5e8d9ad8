"""A real S3 server on a free loopback port: versitygw, built by Go."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from airflow_occ_provider.embedded.bundle import cache_folder
from airflow_occ_provider.embedded.object_store import EmbeddedS3
from airflow_occ_provider.embedded.process import EmbeddedError

VERSION = "1.8.0"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_BUILD_TIMEOUT_S = 1800
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
        return _binary().exists() or shutil.which("go") is not None

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
        return [str(_built()), "--port", address, "--region", self.REGION, "posix", str(buckets)]

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), _ANSWER_TIMEOUT_S):
                return True
        except OSError:
            return False


def _binary() -> Path:
    return cache_folder() / f"versitygw-{VERSION}"


def _built() -> Path:
    """Return the program, built at the first time.

    :raises EmbeddedError: if there is no Go, or the build fails.
    """
    program = _binary()
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise EmbeddedError(
            "versitygw is built by Go, which is not on the PATH. Install Go 1.24 or later"
        )
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        command = ["go", "install", "-trimpath", "-ldflags=-s -w", f"{_MODULE}@v{VERSION}"]
        variables = {
            **os.environ,
            "GOBIN": scratch,
            "GOFLAGS": "-buildvcs=false",
            "GOTOOLCHAIN": "local",
        }
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, timeout=_BUILD_TIMEOUT_S
        )
        if done.returncode:
            raise EmbeddedError(f"versitygw could not be built:\n{done.stderr[-2000:]}")
        Path(scratch, "versitygw").replace(program)
    return program
