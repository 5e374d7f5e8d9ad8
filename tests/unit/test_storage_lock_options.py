from __future__ import annotations

import json

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_occ_provider.attempts.jobs import PythonFile, spark_job
from airflow_occ_provider.attempts.submission import driver_input
from airflow_occ_provider.hudi.writer.options import (
    LOCK_PROVIDER,
    METASTORE_LOCK_PROVIDER,
    ZOOKEEPER_LOCK_PROVIDER,
)
from airflow_occ_provider.hudi.writer.storage_lock import (
    FILE_LOCK_PROVIDER,
    STORAGE_LOCK_PROVIDER,
    file_lock_options,
    required_classes,
    storage_lock_options,
)
from airflow_occ_provider.storage.table import HudiTable

S3, GCS, AZURE = (
    ("org.apache.hudi.aws.transaction.lock.S3StorageLockClient", "hudi-aws-bundle"),
    ("org.apache.hudi.gcp.transaction.lock.GCSStorageLockClient", "hudi-gcp-bundle"),
    ("org.apache.hudi.azure.transaction.lock.AzureStorageLockClient", "hudi-azure-bundle"),
)


def test_the_validity_of_the_storage_based_lock_is_never_set():
    assert storage_lock_options(wait_time_ms=1000, num_retries=2) == {
        LOCK_PROVIDER: STORAGE_LOCK_PROVIDER,
        "hoodie.write.lock.wait_time_ms": "1000",
        "hoodie.write.lock.client.num_retries": "2",
    }


def test_a_lock_file_expires():
    assert file_lock_options(expire_min=10, num_retries=240) == {
        LOCK_PROVIDER: FILE_LOCK_PROVIDER,
        "hoodie.write.lock.filesystem.expire": "10",
        "hoodie.write.lock.client.num_retries": "240",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "5000",
    }


@pytest.mark.parametrize(
    ("scheme", "client"),
    [
        *((scheme, S3) for scheme in ("s3", "s3a")),
        ("gs", GCS),
        *((scheme, AZURE) for scheme in ("wasb", "wasbs", "abfs", "abfss")),
    ],
)
def test_the_storage_based_lock_needs_the_client_of_the_scheme(scheme, client):
    name, bundle = client
    provider, needed = required_classes({LOCK_PROVIDER: STORAGE_LOCK_PROVIDER}, scheme)
    assert provider.name == STORAGE_LOCK_PROVIDER
    assert f"needs Hudi {'1.2' if client is AZURE else '1.1'} or later" in provider.remedy
    assert needed.name == name
    assert f"packages='org.apache.hudi:{bundle}:RELEASE'" in needed.remedy


@pytest.mark.parametrize(
    "provider",
    [FILE_LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER, METASTORE_LOCK_PROVIDER, "com.example.Lock"],
)
def test_every_other_lock_needs_the_providers_own_class(provider):
    (needed,) = required_classes({LOCK_PROVIDER: f" {provider} "}, "s3a")
    assert needed.name == provider
    assert "packages=" in needed.remedy
    assert required_classes({}, "s3a") == ()


def test_the_driver_is_told_the_classes_of_its_table(tmp_path):
    table = HudiTable("s3a://lake/trips", file_system=MemoryFileSystem())
    job = spark_job(PythonFile("job.py"), table, {}, "client")
    given = driver_input(job, {LOCK_PROVIDER: STORAGE_LOCK_PROVIDER}, ())
    names = [one["name"] for one in json.loads(json.dumps(given))["classes"]]
    assert names == [STORAGE_LOCK_PROVIDER, S3[0]]
    local = spark_job(PythonFile("job.py"), HudiTable(str(tmp_path)), {}, "client")
    assert [
        one["name"] for one in driver_input(local, {LOCK_PROVIDER: FILE_LOCK_PROVIDER}, ())["classes"]
    ] == [FILE_LOCK_PROVIDER]
