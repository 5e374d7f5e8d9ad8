"""An S3 server on a free loopback port from one jar: s3proxy."""

from __future__ import annotations

import urllib.error
import urllib.request

from airflow_occ_provider.embedded.bundle import resolve_jar
from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.object_store import EmbeddedS3
from airflow_occ_provider.embedded.private import write_private

VERSION = "4.1.0"
_ANSWER_TIMEOUT_S = 5.0


class EmbeddedS3proxy(EmbeddedS3):
    """An S3 server over a folder during a ``with`` block; a bucket is a folder in it.

    Its ``If-Match`` is not atomic, so a lock or a lease must not be kept in it.

    :param folder: folder of its files; it must be on a file system with extended attributes.
    :param port: its port on 127.0.0.1; ``None`` for a free one.
    """

    _NAME = "s3proxy"
    _LOG = "s3proxy.log"

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        (self.folder / "buckets" / name).mkdir(parents=True, exist_ok=True)

    def _command(self) -> list[str]:
        buckets, configuration = self.folder / "buckets", self.folder / "s3proxy.conf"
        buckets.mkdir(exist_ok=True)
        settings = {
            "s3proxy.endpoint": self.url,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.KEY,
            "s3proxy.credential": self.SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": buckets,
        }
        write_private(configuration, "".join(f"{key}={value}\n" for key, value in settings.items()))
        java = str(find_java_home() / "bin" / "java")
        jar = str(resolve_jar("org.gaul", "s3proxy", VERSION, "jar-with-dependencies"))
        return [java, "-Xmx256m", "-XX:+UseSerialGC", "-jar", jar, "--properties", str(configuration)]

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=_ANSWER_TIMEOUT_S).close()  # noqa: S310 - our own
        except urllib.error.HTTPError:  # refused: the request is not signed
            return True
        except OSError:
            return False
        return True
