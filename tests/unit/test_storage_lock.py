from __future__ import annotations

import json
from contextlib import closing

import pytest

from airflow_occ_provider.connection_form import storage_lock
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.hudi.writer.storage_lock import FILE_LOCK_PROVIDER, STORAGE_LOCK_PROVIDER
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.storage.address import AzureAccess, GcsAccess

PREFIX = "hoodie.write.lock."
CLOSED = "http://127.0.0.1:1"
KEY = {"type": "service_account", "private_key": "s3cret"}


@pytest.fixture
def connection(monkeypatch):
    def connection(host="s3://lake/leases", **extra):
        value = {"conn_type": "hudi_storage_lock", "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
        return lock_hook("lock")

    return connection


@pytest.fixture
def access_of(monkeypatch, connection):
    """Return what a storage's connection gives to the client of a lease root."""

    def access_of(root, conn_type, **given):
        given["extra"] = given.get("extra", {})
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": conn_type, **given}))
        hook = connection(root, storage_conn_id="lake", connection_timeout_ms=300)
        return hook.lease_backend.access

    return access_of


@pytest.mark.parametrize("table", ["s3://b/t", "s3a://b/t", "gs://b/t", "abfss://c@a/t", "wasb://c@a/t"])
def test_a_table_in_a_bucket_has_the_storage_based_lock(connection, table):
    assert connection(wait_time_ms="1000", num_retries=2).options(table) == {
        LOCK_PROVIDER: STORAGE_LOCK_PROVIDER,
        f"{PREFIX}wait_time_ms": "1000",
        f"{PREFIX}client.num_retries": "2",
    }


@pytest.mark.parametrize("table", ["/lake/t", "file:///lake/t", "hdfs://nn:8020/t", "viewfs://c/t"])
def test_a_table_on_a_file_system_has_a_lock_that_expires(connection, table):
    options = connection().options(table)
    assert options[LOCK_PROVIDER] == FILE_LOCK_PROVIDER
    assert options[f"{PREFIX}filesystem.expire"] == "10"
    assert options[f"{PREFIX}client.num_retries"] == "240"
    assert connection(lock_expire_min=1).options(table)[f"{PREFIX}client.num_retries"] == "24"
    assert connection(num_retries=121).options(table)[f"{PREFIX}client.num_retries"] == "121"


def test_a_writer_never_gives_up_before_a_dead_writers_lock_expires(connection):
    hook = connection(num_retries=120)
    with pytest.raises(ConfigurationError, match=r"num_retries: .* 600 s .*Remedy: enter 121 or more"):
        hook.options("/lake/t")
    assert hook.options("s3://lake/t")[f"{PREFIX}client.num_retries"] == "120"


def test_another_scheme_needs_another_lock(connection):
    with pytest.raises(ConfigurationError, match=r"oss://lake/t.*Remedy: use a connection of ZooKeeper"):
        connection().options("oss://lake/t")
    hook = connection(hudi_lock_options=f"{LOCK_PROVIDER}=com.example.Lock")
    assert hook.options("oss://lake/t") == {LOCK_PROVIDER: "com.example.Lock"}


def test_no_service_keeps_hudis_lock(connection):
    assert connection().commit_lock("/lake/t", "t") is None


@pytest.mark.parametrize(
    ("host", "terms"),
    [("s3://lake/leases", Terms(180_000, 600_000)), ("/srv/x", Terms(60_000, 600_000))],
)
def test_the_defaults_depend_on_the_lease_root(connection, host, terms):
    fields = storage_lock()["conn-fields"].items()
    defaults = {name: field["schema"].get("default") for name, field in fields}
    for given in ({}, defaults, dict.fromkeys(defaults), dict.fromkeys(defaults, "")):
        hook = connection(host, **given)
        assert hook.terms() == terms
        assert hook.options("/t") == connection(host).options("/t")
    assert connection(host, lease_ttl_s=900).terms() == Terms(900_000, 900_000)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": ""}, "lease_root"),
        ({"host": "leases"}, "lease_root"),
        ({"host": "ftp://lake/leases"}, "lease_root"),
        ({"host": "s3://"}, "lease_root"),
        ({"host": "/lake/t/.hoodie/leases"}, "lease_root"),
        ({"host": "s3://lake/t/.hoodie"}, "lease_root"),
        ({"lease_ttl_s": 2}, "lease_ttl_s"),
        ({"lease_ttl_s": 29}, "lease_ttl_s"),
        ({"lease_ttl_s": 2, "connection_timeout_ms": 1}, "lease_ttl_s"),
        ({"lease_ttl_s": 60, "claim_ttl_s": 59}, "claim_ttl_s"),
        ({"lease_poll_s": "soon"}, "lease_poll_s"),
        ({"wait_time_ms": 0}, "wait_time_ms"),
        ({"host": "/srv/leases", "lock_expire_min": 0}, "lock_expire_min"),
        ({"host": "/srv/leases", "num_retries": 50}, "num_retries"),
        ({"connection_timeout_ms": "x"}, "connection_timeout_ms"),
        ({"storage_conn_id": "none"}, "storage_conn_id"),
        ({"host": "/srv/leases", "storage_conn_id": "lake"}, "storage_conn_id"),
    ],
)
def test_a_wrong_field_is_named_with_a_remedy(connection, fields, named):
    hook = connection(**fields)
    with pytest.raises(ConfigurationError, match=rf"^connection 'lock', {named}: .*Remedy: ") as told:
        hook.validate()
    assert hook.test_connection() == (False, str(told.value))


def test_leases_in_a_folder_are_checked_kept_and_seen_by_others(connection, tmp_path):
    hook = connection(str(tmp_path / "leases"), connection_timeout_ms=1000)
    ok, message = hook.test_connection()
    assert ok, message
    assert "one was carried out each time" in message
    assert "Hudi does not promise that only one writer holds its lock" in message
    with closing(hook.leases()) as queue:
        ticket = queue.request(Request("i", Owner(("d", "r", "t")), (Scope("/t"),), 60_000))
        queue.ensure_held(ticket)
        with closing(connection(str(tmp_path / "leases")).leases()) as other:
            assert [one.request.id for one in other.requests()] == ["i"]


def test_an_aws_connection_is_read_by_airflows_hook(access_of):
    extra = {"endpoint_url": CLOSED, "region_name": "eu-north-1", "aws_session_token": "t0ken"}
    access = access_of("s3://b/l", "aws", login="k", password="s3cret", extra=extra)
    assert (access.endpoint, access.region, access.path_style) == (CLOSED, "eu-north-1", True)
    given = access.provider()
    assert (given["access_key_id"], given["secret_access_key"]) == ("k", "s3cret")
    assert given["token"] == "t0ken"
    virtual = {"config_kwargs": {"s3": {"addressing_style": "virtual"}}}
    assert access_of("s3a://b/l", "aws", login="k", password="p", extra=virtual).path_style is False


@pytest.mark.parametrize(
    ("extra", "access"),
    [
        ({}, GcsAccess()),
        ({"keyfile_dict": KEY}, GcsAccess(key=json.dumps(KEY))),
        ({"keyfile_dict": json.dumps(KEY)}, GcsAccess(key=json.dumps(KEY))),
        ({"extra__google_cloud_platform__key_path": "/k.json"}, GcsAccess(key_path="/k.json")),
        ({"gcs.endpoint": CLOSED, "is_anonymous": True}, GcsAccess(endpoint=CLOSED)),
    ],
)
def test_a_google_connection_is_read(access_of, extra, access):
    assert access_of("gs://b/l", "google_cloud_platform", extra=extra) == access


@pytest.mark.parametrize(
    ("given", "access"),
    [
        ({"login": "acc", "password": "k"}, AzureAccess("acc", "k")),
        ({"host": "https://acc.blob.core.windows.net/", "password": "k"}, AzureAccess("acc", "k")),
        ({"login": "acc", "extra": {"sas_token": "?sv=1&sig=x"}}, AzureAccess("acc", sas="sv=1&sig=x")),
        (
            {"login": "acc", "extra": {"sas_token": "https://acc.blob.core.windows.net/?sig=x"}},
            AzureAccess("acc", sas="sig=x"),
        ),
        ({"login": "acc", "extra": {"shared_access_key": "k"}}, AzureAccess("acc", "k")),
        (
            {
                "host": "acc.blob.core.windows.net",
                "login": "id",
                "password": "p",
                "extra": {"tenant_id": "t"},
            },
            AzureAccess("acc", client_id="id", client_secret="p", tenant_id="t"),
        ),
        (
            {"extra": {"connection_string": f"AccountName=a;AccountKey=k==;BlobEndpoint={CLOSED}/a"}},
            AzureAccess("a", "k==", endpoint=f"{CLOSED}/a"),
        ),
        ({"host": f"{CLOSED}/a", "password": "k"}, AzureAccess("a", "k", endpoint=f"{CLOSED}/a")),
        ({}, AzureAccess()),
        (
            {
                "host": "acc.blob.core.usgovcloudapi.net",
                "login": "id",
                "password": "p",
                "extra": {"tenant_id": "t"},
            },
            AzureAccess(
                "acc",
                client_id="id",
                client_secret="p",
                tenant_id="t",
                endpoint="https://acc.blob.core.usgovcloudapi.net",
                authority="https://login.microsoftonline.us",
            ),
        ),
        (
            {"host": "https://acc.blob.core.chinacloudapi.cn", "password": "k"},
            AzureAccess("acc", "k", endpoint="https://acc.blob.core.chinacloudapi.cn"),
        ),
        (
            {
                "extra": {
                    "connection_string": "AccountName=acc;AccountKey=k==;"
                    "EndpointSuffix=core.chinacloudapi.cn"
                }
            },
            AzureAccess("acc", "k==", endpoint="https://acc.blob.core.chinacloudapi.cn"),
        ),
        (
            {"extra": {"connection_string": "AccountName=acc;EndpointSuffix=core.windows.net"}},
            AzureAccess("acc"),
        ),
    ],
)
def test_an_azure_connection_is_read(access_of, given, access):
    assert access_of("abfss://c@acc/l", "wasb", **given) == access


@pytest.mark.parametrize(
    ("host", "conn_type", "extra", "told"),
    [
        ("s3://b/l", "wasb", {}, "has the type 'wasb'.*Remedy: use one of the type 'aws'"),
        ("gs://b/l", "aws", {}, "use one of the type 'google_cloud_platform'"),
        ("gs://b/l", "google_cloud_platform", {"key_secret_name": "s3cret"}, "key_secret_name is not"),
        ("gs://b/l", "google_cloud_platform", {"is_anonymous": True}, "is_anonymous is not read"),
        ("gs://b/l", "google_cloud_platform", {"keyfile_dict": "{s3cret"}, "keyfile_dict is not JSON"),
        ("az://c@a/l", "wasb", {"managed_identity_client_id": "s3cret"}, "managed_identity_client_id"),
    ],
)
def test_credentials_that_are_not_read_are_refused_with_a_remedy(
    access_of, host, conn_type, extra, told
):
    with pytest.raises(ConfigurationError, match=rf"'lock', storage_conn_id: .*{told}") as refused:
        access_of(host, conn_type, extra=extra)
    assert "Remedy" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_amazons_provider_is_needed_for_its_connection(access_of, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "airflow.providers.amazon.aws.hooks.base_aws", None)
    with pytest.raises(ConfigurationError, match=r"Remedy: pip install .*providers-amazon"):
        access_of("s3://b/l", "aws")


@pytest.mark.parametrize(
    ("host", "conn_type", "given"),
    [
        ("s3://b/l", "aws", {"login": "k", "password": "s3cret", "extra": {"endpoint_url": CLOSED}}),
        ("az://c/l", "wasb", {"login": "a", "host": f"{CLOSED}/a", "password": "czNjcmV0"}),
    ],
)
def test_secrets_are_in_no_error_and_no_representation(
    connection, access_of, caplog, host, conn_type, given
):
    caplog.set_level("DEBUG")
    access = access_of(host, conn_type, **given)
    hook = connection(host, storage_conn_id="lake", connection_timeout_ms=300)
    ok, message = hook.test_connection()
    assert not ok
    with closing(hook.leases()) as queue, pytest.raises(LockUnreachableError) as told:
        queue.requests()
    shown = f"{access!r}{message}{told.value}{caplog.text}{hook.options('s3://b/t')}"
    assert given["password"] not in shown


def test_an_error_says_whose_value_is_wrong(connection):
    with pytest.raises(ConfigurationError, match=r"num_retries: 'abc' is .*leave it empty for 50"):
        connection(num_retries="abc").options("s3://lake/trips")
    with pytest.raises(ConfigurationError, match=r"^table: 'trips'"):
        connection().options("trips")
