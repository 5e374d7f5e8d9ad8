"""The embedded services are real, ready when they say so, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from kazoo.client import KazooClient
from s3fs import S3FileSystem

from airflow_occ_provider.embedded.process import EmbeddedError
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.client import check_lock_service
from tests.support.observed import processes_in, until

pytestmark = pytest.mark.real

HOLD = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper
with EmbeddedZookeeper(Path(sys.argv[1])) as zookeeper:
    print(zookeeper.hosts, flush=True)
    time.sleep(600)
"""


def test_zookeeper_answers_once_started_and_ends_when_stopped(tmp_path):
    with EmbeddedZookeeper(tmp_path) as zookeeper:
        client = KazooClient(hosts=zookeeper.hosts)
        client.start(timeout=15)
        client.create("/a", b"1")
        client.stop()
        client.close()
        assert processes_in(tmp_path)
    assert processes_in(tmp_path) == []
    with EmbeddedZookeeper(tmp_path) as zookeeper:
        client = KazooClient(hosts=zookeeper.hosts)
        client.start(timeout=15)
        assert client.get("/a")[0] == b"1"
        client.stop()
        client.close()


def opened(store, **given):
    keys = {"key": store.KEY, "secret": store.SECRET, **given}
    region = {"region_name": store.REGION}
    return S3FileSystem(endpoint_url=store.url, client_kwargs=region, skip_instance_cache=True, **keys)


def test_s3_answers_once_started_and_ends_when_stopped(tmp_path):
    with EmbeddedS3proxy(tmp_path) as store:
        store.make_bucket("lake")
        opened(store).pipe("lake/folder/file", b"1")
        assert opened(store).cat("lake/folder/file") == b"1"
        with pytest.raises(PermissionError):
            opened(store, secret="another").cat("lake/folder/file")
        assert processes_in(tmp_path)
    assert processes_in(tmp_path) == []
    (configuration,) = tmp_path.glob("*.conf")
    assert configuration.stat().st_mode & 0o077 == 0
    assert store.SECRET not in (tmp_path / "s3proxy.log").read_text()
    with EmbeddedS3proxy(tmp_path) as store:
        assert opened(store).cat("lake/folder/file") == b"1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_servers_end_with_the_process_that_started_them(tmp_path, number):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().startswith(b"127.0.0.1:")
    assert processes_in(tmp_path)
    os.kill(holder.pid, number)
    holder.wait(30)
    holder.stdout.close()
    until(lambda: not processes_in(tmp_path), "the end of the servers")


def test_a_failed_start_leaves_nothing(tmp_path):
    (tmp_path / "data").write_text("a file where the data folder should be")
    with pytest.raises(EmbeddedError, match="ZooKeeper ended while it started"):
        EmbeddedZookeeper(tmp_path).start()
    assert processes_in(tmp_path) == []


def test_the_connection_check_asks_the_lock_service(embedded_zookeeper):
    access = ZookeeperAccess(embedded_zookeeper.hosts, 15)
    before = check_lock_service(access, "/never/made", "/nor/this")
    assert "/never/made will be created" in before
    assert "/nor/this will be created" in before
    client = KazooClient(hosts=embedded_zookeeper.hosts)
    client.start(timeout=15)
    client.ensure_path("/made")
    found = check_lock_service(access, None, "/made")
    assert "leases can be created under /made" in found
    assert "None" not in found
    assert client.get_children("/made") == []
    client.stop()
    client.close()


def test_an_unreachable_lock_service_is_reported_within_its_timeout():
    started = time.monotonic()
    with pytest.raises(LockUnreachableError, match=r"ZooKeeper at 127\.0\.0\.1:1 .*Remedy"):
        check_lock_service(ZookeeperAccess("127.0.0.1:1", 2), "/locks", "/leases")
    assert time.monotonic() - started < 60
