"""A Ceph of one node with its S3 API, from Debian's packages, which are unpacked and not installed.

``python -m tests.services.ceph FOLDER PORT`` runs it until it is ended.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import boto3
from botocore.config import Config

from airflow_occ_provider.embedded.bundle import cache_folder
from airflow_occ_provider.embedded.object_store import EmbeddedS3
from airflow_occ_provider.embedded.ports import free_ports
from airflow_occ_provider.embedded.process import EmbeddedError
from tests.services.debian import unpacked

PACKAGES = ("radosgw", "ceph-mon", "ceph-osd", "ceph-common")
PYTHON = "/usr/bin/python3"  # Debian's: the tool ``ceph`` has a module compiled for it
_STEP_TIMEOUT_S, _READY_S = 60, 120
_KEYS = (
    ("mon.", ("mon", "allow *")),
    ("client.admin", ("mon", "allow *"), ("osd", "allow *")),
    ("client.rgw", ("mon", "allow rw"), ("osd", "allow rwx")),
)
_CONFIGURATION = """
[global]
fsid = {fsid}
mon_host = {monitors}
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 1000
run_dir = {folder}/run
admin_socket = {folder}/run/$name.asok
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
crash_dir = {folder}/crash
plugin_dir = {libraries}/ceph
erasure_code_dir = {libraries}/ceph/erasure-code
osd_class_dir = {libraries}/rados-classes
keyring = {folder}/keyring
[mon]
mon_data = {folder}/mon
mon_initial_members = a
mon_data_avail_warn = 2
mon_data_avail_crit = 1
[osd]
keyring = {folder}/osd/keyring
osd_data = {folder}/osd
osd_objectstore = bluestore
bluestore_block_size = 4294967296
osd_memory_target = 939524096
[client.rgw]
rgw_frontends = beast endpoint=127.0.0.1:{port}
rgw_data = {folder}/rgw
rgw_enable_usage_log = false
rgw_run_sync_thread = false
"""


class Ceph(EmbeddedS3):
    """A Ceph during a ``with`` block. Its objects are no files, and its If-Match is not S3's."""

    _NAME = "Ceph"
    _LOG = "ceph.log"

    @staticmethod
    def why_not() -> str:
        """Return why it cannot run here; empty if it can."""
        if not Path(PYTHON).exists() or not all(map(shutil.which, ("apt-get", "dpkg-deb"))):
            return "Ceph needs Debian's apt-get, dpkg-deb and Python"
        if (
            not _root().exists()
            and subprocess.run(
                ["apt-cache", "show", PACKAGES[0]],
                capture_output=True,
                check=False,
                timeout=_STEP_TIMEOUT_S,
            ).returncode
        ):
            return f"apt knows no package {PACKAGES[0]}"
        return ""

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """What a driver's Spark must be told: Ceph refuses an empty object with a V4 signature."""
        signed = {"spark.hadoop.fs.s3a.signing-algorithm": "S3SignerType"}
        return {**super().spark_settings, **signed}

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        config = Config(s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=30)
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=self.REGION,
            aws_access_key_id=self.KEY,
            aws_secret_access_key=self.SECRET,
            config=config,
        )
        client.create_bucket(Bucket=name)
        client.close()

    def _command(self) -> list[str]:
        unpacked(_root().name, *PACKAGES)
        (self.folder / "started").unlink(missing_ok=True)
        return [sys.executable, "-m", "tests.services.ceph", str(self.folder), str(self.port)]

    def _answers(self) -> bool:
        if not (self.folder / "started").exists():
            return False
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5):
                return True
        except OSError:
            return False


def _root() -> Path:
    return cache_folder() / "ceph"


class Cluster:
    """The daemons, each started when those before it answer."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        root = _root()
        (libraries,) = (root / "usr" / "lib").glob("*-linux-gnu")
        self._fill(port, libraries)
        self._variables = {
            **os.environ,
            "CEPH_CONF": str(folder / "ceph.conf"),
            "LD_LIBRARY_PATH": f"{libraries}:{libraries}/ceph:{root}/lib/{libraries.name}",
            "PATH": f"{root}/usr/bin:{os.environ['PATH']}",
            "PYTHONPATH": str(root / "usr" / "lib" / "python3" / "dist-packages"),
        }

    def _fill(self, port: int, libraries: Path) -> None:
        for name in ("mon", "osd", "run", "crash"):
            (self.folder / name).mkdir(exist_ok=True)
        second, first = free_ports(2)
        self.fsid = str(uuid.uuid4())
        self.monitors = f"[v2:127.0.0.1:{second},v1:127.0.0.1:{first}]"
        text = _CONFIGURATION.format(
            folder=self.folder,
            port=port,
            fsid=self.fsid,
            monitors=self.monitors,
            libraries=libraries,
        )
        (self.folder / "ceph.conf").write_text(text)

    def run(self, *command: str) -> str:
        """Run a tool to its end; it must succeed."""
        done = subprocess.run(
            command,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=_STEP_TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise EmbeddedError(f"{' '.join(command[:4])}: {done.stderr[-1000:]}")
        return done.stdout

    def ceph(self, *arguments: str) -> str:
        """Send a command to the monitor."""
        tool = str(_root() / "usr" / "bin" / "ceph")
        return self.run(PYTHON, tool, "--connect-timeout", "20", *arguments)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a daemon in the foreground of this session."""
        return subprocess.Popen([*command, "-f"], env=self._variables, stdin=subprocess.DEVNULL)

    def wait_for(self, what: str, *arguments: str) -> None:
        """Wait until a command's answer has a text."""
        deadline = time.monotonic() + _READY_S
        while what not in self.ceph(*arguments):
            if time.monotonic() > deadline:
                raise EmbeddedError(f"{' '.join(arguments)} does not say {what!r} after {_READY_S} s")
            time.sleep(0.2)

    def make_keys(self) -> None:
        """Make the keys of the monitor, of the tools and of the gateway."""
        keyring = str(self.folder / "keyring")
        self.run("ceph-authtool", "--create-keyring", keyring)
        for name, *grants in _KEYS:
            caps = [part for service, cap in grants for part in ("--cap", service, cap)]
            self.run("ceph-authtool", keyring, "--gen-key", "-n", name, *caps)

    def start_monitor(self) -> None:
        """Make and start the monitor."""
        keyring, monmap = str(self.folder / "keyring"), str(self.folder / "monmap")
        monitors = ("--addv", "a", self.monitors)
        self.run("monmaptool", "--create", "--clobber", "--fsid", self.fsid, *monitors, monmap)
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keyring)
        self.start("ceph-mon", "-i", "a")
        self.wait_for("quorum 0 a", "mon", "stat")

    def start_disk(self) -> None:
        """Make and start the daemon that stores the objects."""
        disk = str(uuid.uuid4())
        self.ceph("osd", "new", disk)
        caps = ("osd", "allow *", "mon", "allow profile osd")
        key = self.ceph("auth", "get-or-create", "osd.0", *caps)
        (self.folder / "osd" / "keyring").write_text(key)
        self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self.start("ceph-osd", "-i", "0")
        self.wait_for("1 up", "osd", "stat")

    def start_gateway(self) -> subprocess.Popen[bytes]:
        """Start the S3 API, and add its user."""
        gateway = self.start("radosgw", "-n", "client.rgw")
        user = ("--uid=embedded", "--display-name=embedded", f"--access-key={Ceph.KEY}")
        self.run("radosgw-admin", "user", "create", *user, f"--secret-key={Ceph.SECRET}")
        return gateway


def main(folder: str, port: str) -> int:
    cluster = Cluster(Path(folder), int(port))
    cluster.make_keys()
    cluster.start_monitor()
    cluster.start_disk()
    gateway = cluster.start_gateway()
    Path(folder, "started").touch()
    return gateway.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
