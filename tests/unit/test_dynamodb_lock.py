"""The connection ``hudi_dynamodb_lock``: what its fields mean, and what is refused."""

from __future__ import annotations

import json

import pytest

from airflow_occ_provider.connection_form import dynamodb_lock
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.lease import Terms

OTHER = "hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.InProcessLockProvider"


@pytest.fixture
def connect(monkeypatch):
    def define(host="airflow_occ", **extra):
        value = {"conn_type": "hudi_dynamodb_lock", "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
        return lock_hook("lock")

    return define


def test_hudi_locks_in_its_own_table_by_the_tables_name(connect):
    assert connect(region="eu-central-1").options("s3a://lake/trips") == {
        "hoodie.write.lock.provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
        "hoodie.write.lock.dynamodb.table": "hudi_locks",
        "hoodie.write.lock.dynamodb.region": "eu-central-1",
        "hoodie.write.lock.wait_time_ms": "60000",
        "hoodie.write.lock.client.num_retries": "50",
    }
    elsewhere = connect(endpoint_url="http://127.0.0.1:1", lock_table="locks").options("/t")
    assert elsewhere["hoodie.write.lock.dynamodb.endpoint_url"] == "http://127.0.0.1:1"
    assert elsewhere["hoodie.write.lock.dynamodb.table"] == "locks"
    assert "hoodie.write.lock.dynamodb.region" not in elsewhere


def test_another_lock_of_hudi_leaves_the_leases_where_they_are(connect):
    hook = connect(hudi_lock_options=OTHER)
    assert hook.options("/t") == dict([OTHER.split("=")])
    assert hook.lease_backend.access.table == "airflow_occ"


def test_the_defaults_of_the_form_are_those_without_fields(connect):
    fields = dynamodb_lock()["conn-fields"].items()
    defaults = {key: field["schema"].get("default") for key, field in fields}
    filled, empty = connect(**{key: value for key, value in defaults.items() if value}), connect()
    assert filled.options("/t") == empty.options("/t")
    assert filled.lease_backend == empty.lease_backend
    assert empty.terms() == Terms(180_000, 600_000)


@pytest.mark.parametrize(
    ("host", "extra", "field"),
    [
        ("", {}, "host"),
        ("hudi_locks", {}, "lock_table"),
        ("airflow_occ", {"storage_conn_id": "nowhere", "region": "eu-central-1"}, "storage_conn_id"),
        ("airflow_occ", {"lease_ttl_s": 10}, "lease_ttl_s"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field(connect, host, extra, field):
    with pytest.raises(ConfigurationError) as caught:
        connect(host, **extra).validate()
    assert field in str(caught.value.field)


def test_a_service_that_does_not_answer_is_said(connect, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "k")
    hook = connect(region="us-east-1", endpoint_url="http://127.0.0.1:1", connection_timeout_ms=300)
    with pytest.raises(LockUnreachableError, match="DynamoDB did not answer for table airflow_occ"):
        hook.leases().requests()
    assert hook.test_connection()[0] is False
