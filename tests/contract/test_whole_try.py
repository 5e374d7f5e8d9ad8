"""What one try of a task asks of its lock service, counted there; no part of ours is replaced."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing

import boto3
import pytest
from airflow.sdk.exceptions import TaskDeferred
from kazoo.client import KazooClient

from airflow_occ_provider.connection_form import GROUP
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.contract.counted import CountedConnections
from tests.support.installed import install
from tests.support.stand_in import Writer, make_empty_table, stand_in_variables
from tests.support.task_state import Store

BUCKET = "leases"
MOST_REQUESTS, MOST_SESSIONS = 12, 2


@pytest.fixture
def table(tmp_path, monkeypatch):
    """An empty table, and a Spark that commits to it."""
    table = tmp_path / "t"
    make_empty_table(table)
    variables = stand_in_variables(tmp_path / "spark", table)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return table


@pytest.fixture
def write(table, tmp_path):
    """Runs the first try of a task, to its end."""

    def write(**arguments):
        job = tmp_path / "job.py"
        job.touch()
        task = HudiWriteOperator(
            task_id="t", application=str(job), table=str(table), lock_conn_id="lock", **arguments
        )
        context = {"ti": Writer(1, 14), "task": task, "task_state_store": Store(), "outlet_events": {}}
        return task.execute(context)

    return write


@pytest.fixture
def lock(monkeypatch):
    def lock(conn_type, host, **extra):
        value = {"conn_type": conn_type, "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
        return lock_hook("lock")

    return lock


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """The requests to a lease root in a bucket of its own."""
    url, requests = s3_server
    aws = {"conn_type": "aws", "login": "k", "password": "s"}
    aws["extra"] = {"endpoint_url": url, "region_name": "us-east-1"}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(aws))
    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )
    client.create_bucket(Bucket=BUCKET)
    requests.clear()
    return requests


@pytest.mark.parametrize("arguments", [{}, {"isolation": "serializable"}], ids=str)
def test_an_uncontended_write_makes_few_requests_to_the_bucket_of_its_leases(
    write, lock, bucket, arguments
):
    lock("hudi_storage_lock", f"s3://{BUCKET}/{len(arguments)}", storage_conn_id="lake")
    assert write(**arguments)["instant"]
    methods = Counter(request.partition(" ")[0] for request in bucket)
    assert 0 < methods.total() <= MOST_REQUESTS, methods


@pytest.mark.parametrize("arguments", [{}, {"isolation": "serializable"}], ids=str)
def test_an_uncontended_write_has_few_sessions_in_zookeeper(
    write, lock, embedded_zookeeper, monkeypatch, tmp_path, arguments
):
    monkeypatch.setenv("STAND_IN_ZOOKEEPER", embedded_zookeeper.hosts)
    with CountedConnections(embedded_zookeeper.hosts) as counted:
        lock("hudi_zookeeper_lock", counted.address, base_path=f"/{tmp_path.name}/locks")
        assert write(**arguments)["instant"]
    assert 0 < counted.number <= MOST_SESSIONS


def test_a_task_is_queued_in_a_store_of_another_package(write, lock, table, tmp_path, monkeypatch):
    install(tmp_path / "site", "bucket_locks", GROUP, "lock = tests.unit.bucket_form:bucket_lock")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    rival = Request("rival", Owner(("d", "r", "rival")), (Scope(str(table)),), 60_000)
    with closing(lock("bucket_lock", tmp_path.name).leases()) as queue:
        assert write()["instant"]
        assert not queue.requests()
        queue.request(rival)
        with pytest.raises(TaskDeferred):
            write()
        assert len(queue.requests()) == 2


@pytest.mark.parametrize("chroot", ["/missing", "/two/levels"])
def test_a_missing_chroot_is_told_and_not_made(lock, embedded_zookeeper, chroot):
    hook = lock("hudi_zookeeper_lock", f"{embedded_zookeeper.hosts}{chroot}")
    ok, message = hook.test_connection()
    assert not ok
    for call in (hook.leases, lambda: hook.commit_lock("/t", "t")):
        with pytest.raises(ConfigurationError, match=rf"{chroot} does not exist.*create {chroot}"):
            call()
    client = KazooClient(embedded_zookeeper.hosts)
    client.start()
    assert client.exists(chroot) is None
    client.create(chroot, makepath=True)
    client.stop()
    client.close()
    assert hook.test_connection()[0], message


@pytest.mark.parametrize(
    ("conn_type", "fields"),
    [
        ("hudi_storage_lock", {"storage_conn_id": "lake"}),
        ("hudi_zookeeper_lock", {}),
        ("hudi_metastore_lock", {}),
    ],
)
def test_validating_a_connection_asks_nothing(lock, bucket, conn_type, fields):
    with CountedConnections("127.0.0.1:1") as counted:
        host = f"s3://{BUCKET}/x" if conn_type == "hudi_storage_lock" else counted.address
        lock(conn_type, host, **fields).validate()
    assert (counted.number, bucket) == (0, [])
