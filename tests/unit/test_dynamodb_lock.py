"""The connection ``hudi_dynamodb_lock``: what its fields mean, and what is refused."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoRegionError

from airflow_occ_provider.connection_form import dynamodb_lock
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.dynamodb.access import DynamoAccess
from airflow_occ_provider.leases.dynamodb.backend import DynamoLeases
from airflow_occ_provider.leases.dynamodb.ledger import DynamoLedger
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.ledger import Change
from airflow_occ_provider.leases.store import NodeGoneError, NodeTakenError

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
    fields_of_user = {"endpoint_url": "http://127.0.0.1:1", "lock_table": "locks"}
    elsewhere = connect(region="eu-central-1", **fields_of_user).options("/t")
    assert elsewhere["hoodie.write.lock.dynamodb.endpoint_url"] == "http://127.0.0.1:1"
    assert elsewhere["hoodie.write.lock.dynamodb.table"] == "locks"


def test_another_lock_of_hudi_leaves_the_leases_where_they_are(connect):
    hook = connect(hudi_lock_options=OTHER)
    assert hook.options("/t") == dict([OTHER.split("=")])
    assert hook.lease_backend.access.table == "airflow_occ"


def test_the_defaults_of_the_form_are_those_without_fields(connect):
    fields = dynamodb_lock()["conn-fields"].items()
    defaults = {key: field["schema"].get("default") for key, field in fields}
    fields_of_user = {key: value for key, value in defaults.items() if value}
    filled, empty = connect(region="eu-central-1", **fields_of_user), connect(region="eu-central-1")
    assert filled.options("/t") == empty.options("/t")
    assert filled.lease_backend == empty.lease_backend
    assert empty.terms() == Terms(180_000, 600_000)


@pytest.mark.parametrize(
    ("host", "extra", "field"),
    [
        ("", {"region": "eu-central-1"}, "host"),
        ("airflow_occ", {}, "region"),
        ("hudi_locks", {"region": "eu-central-1"}, "lock_table"),
        ("airflow_occ", {"storage_conn_id": "nowhere", "region": "eu-central-1"}, "storage_conn_id"),
        ("airflow_occ", {"region": "eu-central-1", "lease_ttl_s": 10}, "lease_ttl_s"),
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


def failing_session(error):
    def session():
        raise error

    return session


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (ClientError({"Error": {"Code": "AccessDenied"}}, "AssumeRole"), ConfigurationError),
        (ClientError({"Error": {"Code": "Throttling"}}, "AssumeRole"), LockUnreachableError),
        (EndpointConnectionError(endpoint_url="https://sts"), LockUnreachableError),
        (NoRegionError(), ConfigurationError),
    ],
)
def test_credentials_that_are_not_given_now_are_no_wrong_configuration(error, raised):
    access = DynamoAccess("airflow_occ", session=failing_session(error))
    with pytest.raises(raised):
        DynamoLeases(access).open()
    DynamoLeases(access).validate()  # asks nothing


class Recorder:
    """A client of DynamoDB that records what it is asked, and answers with errors, then well."""

    def __init__(self, *errors):
        self.errors, self.requests = list(errors), []

    def transact_write_items(self, **arguments):
        self.requests.append(arguments["TransactItems"])
        if self.errors:
            reasons = [{"Code": code} for code in self.errors.pop(0)]
            answer = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
            raise ClientError(answer, "TransactWriteItems")

    def get_item(self, **_):
        return {"Item": {"last_token": {"N": "9"}, "last_node": {"S": "rival"}}}


@pytest.fixture
def recorded(monkeypatch):
    def ledger(*errors, timeout_s=10.0):
        client = Recorder(*errors)
        monkeypatch.setattr(DynamoAccess, "client", lambda self, timeout_s: client)
        return client, DynamoLedger(DynamoAccess("t"), "q", timeout_s)

    return ledger


def checks_of(writes):
    return {
        check["Key"]["node"]["S"]: check["ConditionExpression"]
        for write in writes
        if (check := write.get("ConditionCheck"))
    }


def test_a_creation_waits_for_the_transaction_that_creates_the_node_before(recorded):
    busy, failed = ["None", "None", "TransactionConflict"], ["ConditionalCheckFailed", "None"]
    client, ledger = recorded(failed, busy)
    token = ledger.change(Change("create", "mine")).nodes["mine"].token
    first, contested, repeated = client.requests
    assert checks_of(first) == {}
    passes = "attribute_exists(node) OR attribute_not_exists(node)"
    assert checks_of(contested) == checks_of(repeated) == {"rival": passes}
    assert token == 10
    ledger.change(Change("create", "next", requires="mine"))
    assert checks_of(client.requests[-1]) == {"mine": "attribute_exists(node)"}
    ledger.change(Change("create", "other", requires="mine"))
    assert checks_of(client.requests[-1]) == {"mine": "attribute_exists(node)", "next": passes}


@pytest.mark.parametrize(
    ("codes", "raised"),
    [
        (["ConditionalCheckFailed", "ConditionalCheckFailed", "None"], NodeTakenError),
        (["None", "None", "ConditionalCheckFailed"], NodeGoneError),
        (["None", "ValidationError", "None"], ConfigurationError),
        (["None", "AccessDenied", "None"], ConfigurationError),
    ],
)
def test_what_refuses_a_creation_is_told_once(recorded, codes, raised):
    client, ledger = recorded(codes)
    with pytest.raises(raised):
        ledger.change(Change("create", "mine", requires="lease"))
    assert len(client.requests) == 1


def test_a_creation_that_is_contested_all_the_time_ends(recorded):
    client, ledger = recorded(*([["ConditionalCheckFailed", "None"]] * 1000), timeout_s=0.3)
    with pytest.raises(LockUnreachableError, match="other nodes are created all the time"):
        ledger.change(Change("create", "mine"))
    assert client.errors


def test_the_first_token_of_a_new_table_is_greater_than_those_of_the_one_before(recorded):
    _, ledger = recorded()
    assert ledger.change(Change("create", "mine")).nodes["mine"].token > 1_700_000_000_000_000_000
