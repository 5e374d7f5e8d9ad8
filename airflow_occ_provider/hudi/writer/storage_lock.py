"""Hudi's locks that need only a table's own storage, and the classes of locks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from airflow_occ_provider.hudi.writer.options import FILE_LOCK_EXPIRE, FILE_LOCK_PATH, LOCK_PROVIDER

_PACKAGE = "org.apache.hudi.client.transaction.lock"
STORAGE_LOCK_PROVIDER = f"{_PACKAGE}.StorageBasedLockProvider"
FILE_LOCK_PROVIDER = f"{_PACKAGE}.FileSystemBasedLockProvider"
FILE_LOCK_SCHEMES = ("file", "hdfs", "viewfs")
# Object stores by any of their schemes: they cannot create a file only if it does not exist, as this
# provider needs it, and Hudi refuses them ("Unsupported scheme").
_NO_FILE_LOCK = frozenset(
    {"s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "wasb", "wasbs", "adl", "az"}
    | {"oss", "cos", "cosn", "obs", "bos", "ks3", "tos", "oci", "swift"}
)
RETRY_S = 5
"""Seconds between two attempts of Hudi to get its lock."""


class RequiredClass(NamedTuple):
    """A class that a driver must have before its job begins.

    :param remedy: how a driver gets it.
    """

    name: str
    remedy: str


class _LockClient(NamedTuple):
    bundle: str
    since: str
    name: str


_S3 = _LockClient("hudi-aws-bundle", "1.1", "org.apache.hudi.aws.transaction.lock.S3StorageLockClient")
_GCS = _LockClient("hudi-gcp-bundle", "1.1", "org.apache.hudi.gcp.transaction.lock.GCSStorageLockClient")
_AZURE = _LockClient(
    "hudi-azure-bundle", "1.2", "org.apache.hudi.azure.transaction.lock.AzureStorageLockClient"
)
_CLIENTS = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    "gs": _GCS,
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE),
}
OBJECT_LOCK_SCHEMES = tuple(_CLIENTS)


def storage_lock_options(*, wait_time_ms: int, num_retries: int) -> dict[str, str]:
    """Return the options of Hudi's lock by conditional writes.

    The validity is never set: the client of Hudi 1.2 fails if it is given as text.
    """
    return {
        LOCK_PROVIDER: STORAGE_LOCK_PROVIDER,
        "hoodie.write.lock.wait_time_ms": str(wait_time_ms),
        "hoodie.write.lock.client.num_retries": str(num_retries),
    }


def file_lock_options(*, expire_min: int, num_retries: int) -> dict[str, str]:
    """Return the options of Hudi's lock by a file of a local disk or of HDFS.

    :param expire_min: minutes after which the lock of a killed writer is taken over; 0 means never.
    """
    return {
        LOCK_PROVIDER: FILE_LOCK_PROVIDER,
        FILE_LOCK_EXPIRE: str(expire_min),
        "hoodie.write.lock.client.num_retries": str(num_retries),
        "hoodie.write.lock.client.wait_time_ms_between_retry": str(RETRY_S * 1000),
    }


def file_lock_store(options: Mapping[str, str], table: str) -> str | None:
    """Return where Hudi's lock by a file would lie in an object store, if it does.

    :param options: Hudi's options, with its lock provider.
    :param table: base path, below which the lock lies if the options name no other place.
    """
    if options.get(LOCK_PROVIDER, "").strip() != FILE_LOCK_PROVIDER:
        return None
    place = options.get(FILE_LOCK_PATH, "").strip() or table
    return place if place.partition(":")[0].lower() in _NO_FILE_LOCK else None


def required_classes(options: Mapping[str, str], scheme: str) -> tuple[RequiredClass, ...]:
    """Return the classes that the lock of a driver's options needs.

    :param options: Hudi's options of the driver.
    :param scheme: of the table's base path, in Hadoop's spelling.
    """
    provider = options.get(LOCK_PROVIDER, "").strip()
    if not provider:
        return ()
    release = ""
    client = None
    if provider == STORAGE_LOCK_PROVIDER:
        client = _CLIENTS.get(scheme)
        release = client.since if client else "1.1"
    remedy = (
        f"this lock needs Hudi {release} or later"
        if release
        else "give the driver the jar that has Hudi's lock provider, by packages= or jars="
    )
    classes = [RequiredClass(provider, remedy)]
    if client:
        classes.append(RequiredClass(client.name, _remedy(client)))
    return tuple(classes)


def _remedy(client: _LockClient) -> str:
    return (
        f"it is in {client.bundle}, not in Hudi's bundle for Spark: add "
        f"packages='org.apache.hudi:{client.bundle}:RELEASE', with the RELEASE of the driver's Hudi"
    )
