"""Lease roots: which object each names, and what of a connection is refused."""

from __future__ import annotations

import pytest

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.storage.access import AzureAccess, GcsAccess, S3Access
from airflow_occ_provider.leases.storage.address import (
    BUCKET_PACE,
    LOCAL_PACE,
    open_shared_object,
    parse_root,
)
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.leases.storage.folder import FolderObject

KEY = "c2VjcmV0"
S3 = S3Access("id", "secret", endpoint="http://127.0.0.1:1")
GCS, AZURE = GcsAccess(endpoint="http://127.0.0.1:1"), AzureAccess(key=KEY)


@pytest.mark.parametrize(
    ("root", "access", "place"),
    [
        ("s3a://lake/leases/", S3, "s3://lake/leases/queue.json"),
        ("s3://lake", S3, "s3://lake/queue.json"),
        ("s3://lake/a//b/../c", S3, "s3://lake/a/c/queue.json"),
        ("gs://lake/leases", GCS, "gs://lake/leases/queue.json"),
        ("abfss://c@acc.dfs.core.windows.net/leases", AZURE, "az://c@acc/leases/queue.json"),
        ("wasb://c@devstoreaccount1/leases", AZURE, "az://c@devstoreaccount1/leases/queue.json"),
        ("az://c/leases", AzureAccess("acc", sas="?sv=1&sig=x"), "az://c@acc/leases/queue.json"),
    ],
)
def test_a_url_names_an_object_in_a_bucket(root, access, place):
    opened = open_shared_object(root, access)
    assert (type(opened), opened.place) == (BucketObject, place)
    assert parse_root(root).pace == BUCKET_PACE


@pytest.mark.parametrize("root", ["/srv/leases", "file:///srv/leases", "file:/srv/x/../leases/"])
def test_a_path_names_a_file(root):
    opened = open_shared_object(root)
    assert (type(opened), opened.place) == (FolderObject, "/srv/leases/queue.json")
    assert parse_root(root).pace == LOCAL_PACE


@pytest.mark.parametrize(
    ("root", "access", "wrong"),
    [
        ("leases", None, "lease_root: 'leases' is neither a URL nor an absolute path"),
        ("file://host/leases", None, "lease_root: .*neither"),
        ("hdfs://n/leases", None, "lease_root: hdfs:// is no storage that can keep leases"),
        ("s3://", S3, "lease_root: the URL names no bucket"),
        ("s3://user@lake/x", S3, "lease_root: the URL names no bucket"),
        ("s3://lake/x?a=b", S3, "lease_root: the URL holds more"),
        ("gs://lake/x", S3, "credentials: they are of S3, but gs://lake/x is of Google"),
        ("s3://lake", S3Access("id"), "credentials: of the access key and its secret, one is empty"),
        ("s3://lake", S3Access(endpoint="host:9000"), "credentials: the endpoint 'host:9000' is no"),
        ("gs://lake", GcsAccess(key="{}", key_path="/k"), "credentials: a service account's key and"),
        ("gs://lake", GcsAccess(key="{}"), "credentials: .*service account"),
        ("az://c/x", AZURE, "credentials: no storage account is named"),
        (
            "wasb://c@a/x",
            AzureAccess(key=KEY, sas="s"),
            "credentials: more than one kind",
        ),
        ("wasb://c@a/x", AzureAccess(client_id="i"), "credentials: of a service principal"),
    ],
)
def test_what_is_wrong_is_told_before_a_request(root, access, wrong):
    with pytest.raises(ConfigurationError, match=f"{wrong}.*Remedy"):
        open_shared_object(root, access)


def test_no_secret_is_shown():
    with pytest.raises(ConfigurationError) as told:
        parse_root("s3://id:secret@lake/leases")
    assert "secret" not in str(told.value)
    shown = repr((S3Access("i", "secret", "secret"), GcsAccess("secret"), AzureAccess(key="secret")))
    assert "secret=" not in shown
    assert "'secret'" not in shown
