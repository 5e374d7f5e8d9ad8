"""Lease roots: which object each names, and what of a connection is refused."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.storage.address import (
    BUCKET_PACE,
    LOCAL_PACE,
    AzureAccess,
    GcsAccess,
    S3Access,
    parse_root,
)
from airflow_occ_provider.leases.storage.backend import open_shared_object
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.leases.storage.objects import FolderObject

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
        (
            "abfss://c@a.example.com/x",
            AZURE,
            "lease_root: a.example.com is no host of a storage account",
        ),
        ("abfss://c@a.b.blob.core.windows.net/x", AZURE, "lease_root: a.b.blob.core.windows.net is no"),
        (
            "az://c@a/x",
            AzureAccess("b", KEY),
            "credentials: they are of the account b, but the URL names",
        ),
        (
            "abfss://c@a.dfs.core.windows.net/x",
            AzureAccess("b", KEY),
            "credentials: they are of the acc",
        ),
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


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [
        ("acc.dfs.core.windows.net", None),
        ("acc.privatelink.blob.core.windows.net", None),
        ("acc.dfs.core.chinacloudapi.cn", "https://acc.blob.core.chinacloudapi.cn"),
        ("Acc.Blob.Core.ChinaCloudApi.cn", "https://acc.blob.core.chinacloudapi.cn"),
        ("acc.dfs.core.usgovcloudapi.net", "https://acc.blob.core.usgovcloudapi.net"),
        ("acc.privatelink.dfs.core.usgovcloudapi.net", "https://acc.blob.core.usgovcloudapi.net"),
        ("onelake.dfs.fabric.microsoft.com", "https://onelake.blob.fabric.microsoft.com"),
        ("acc.z01.dfs.storage.azure.net", "https://acc.z01.blob.storage.azure.net"),
    ],
)
@pytest.mark.parametrize("scheme", ["abfss", "wasbs", "az"])
def test_requests_go_to_the_cloud_that_the_url_names(scheme, host, endpoint):
    config = open_shared_object(f"{scheme}://c@{host}/leases", AZURE)._store.config
    assert (config["account_name"], config.get("endpoint")) == (host.split(".")[0].lower(), endpoint)


def test_the_endpoint_of_the_connection_goes_before_that_of_the_url():
    proxy = AzureAccess("acc", KEY, endpoint="http://127.0.0.1:1/acc")
    opened = open_shared_object("abfss://c@acc.dfs.core.chinacloudapi.cn/leases", proxy)
    assert opened._store.config["endpoint"] == "http://127.0.0.1:1/acc"


def test_a_service_principal_gets_its_token_in_the_cloud_of_its_account():
    principal = AzureAccess(client_id="i", client_secret="s", tenant_id="t")
    for cloud, authority in (
        ("chinacloudapi.cn", "https://login.chinacloudapi.cn"),
        ("usgovcloudapi.net", "https://login.microsoftonline.us"),
        ("windows.net", None),
    ):
        opened = open_shared_object(f"abfss://c@acc.dfs.core.{cloud}/leases", principal)
        assert opened._store.config.get("authority_host") == authority


@pytest.mark.parametrize(
    ("folder_mode", "file_mode"), [(0o2775, 0o664), (0o777, 0o666), (0o700, 0o600), (0o750, 0o640)]
)
def test_the_files_of_a_folder_have_its_permissions(tmp_path, folder_mode, file_mode):
    folder = tmp_path / "leases"
    folder.mkdir()
    folder.chmod(folder_mode)
    before = os.umask(0o077)
    try:
        shared = open_shared_object(str(folder))
        shared.write(b"2", shared.write(b"1", ""))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {file_mode}
    assert len(list(folder.iterdir())) == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another account")
def test_two_accounts_of_one_group_write_one_folder():
    # Not below tmp_path, which other accounts may not enter.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        folder = Path(name, "leases")
        folder.mkdir()
        os.chown(folder, -1, 4242)
        folder.chmod(0o2770)
        (folder / "queue.json.new").touch(0o600)  # of a process that was killed
        shared = open_shared_object(str(folder))
        tag = shared.write(b"1", "")
        script = (
            "import os, sys; os.setgroups([4242]); os.setgid(4343); os.setuid(4343); os.umask(0o077)\n"
            "from airflow_occ_provider.leases.storage.objects import FolderObject\n"
            "from pathlib import Path\n"
            "FolderObject(Path(sys.argv[1])).write(b'2', sys.argv[2])"
        )
        # The package is imported before the change of account: its folder may be closed to others.
        script = "import airflow_occ_provider.leases.storage.objects\n" + script
        command = [sys.executable, "-c", script, str(folder / "queue.json"), tag]
        subprocess.run(command, check=True, timeout=60)
        assert shared.read("").data == b"2"
        shared.write(b"3", shared.read("").tag)
