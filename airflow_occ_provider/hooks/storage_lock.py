"""The connection ``hudi_storage_lock``: no lock service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLock, HudiLockHook, answer_timeout_s, ttl_s
from airflow_occ_provider.hudi.writer.storage_lock import (
    FILE_LOCK_SCHEMES,
    OBJECT_LOCK_SCHEMES,
    RETRY_S,
    file_lock_options,
    storage_lock_options,
)
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.storage.address import (
    Access,
    AzureAccess,
    AzureHost,
    GcsAccess,
    Root,
    S3Access,
    open_shared_object,
    parse_root,
)
from airflow_occ_provider.storage.address import parse_table_path

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.hooks.hudi_lock import Fields
    from airflow_occ_provider.leases.queue import Queue
    from airflow_occ_provider.leases.storage.bucket import BucketObject
    from airflow_occ_provider.leases.storage.folder import FolderObject


_FIELD = "storage_conn_id"
_KEPT = timedelta(minutes=5)
_OF_THE_PROCESS = "leave storage_conn_id empty, for the credentials of the process"
_GCS_UNREAD = ("key_secret_name", "credential_config_file", "impersonation_chain", "idp_issuer_url")
_AZURE_UNREAD = ("managed_identity_client_id", "workload_identity_tenant_id")
_RETRIES_A_MINUTE = 60 // RETRY_S
_GATHERS_PER_TTL = 60  # a renewal that waits to be gathered is late by a part of its period at most


class HudiStorageLockHook(HudiLockHook):
    """The hook of a ``hudi_storage_lock`` connection.

    :param lock_conn_id: id of the connection.
    """

    conn_type = "hudi_storage_lock"
    hook_name = "Hudi lock (storage)"
    limits = (
        "Not checked: Hudi's own lock, which lies beside each table. In a bucket, a driver needs a "
        "class of hudi-aws-bundle, hudi-gcp-bundle or hudi-azure-bundle, and looks for it before its "
        "job begins. On a local disk or HDFS, Hudi does not promise that only one writer holds its "
        "lock: use that to try things out, or on a small site."
    )

    @cached_property
    def service(self) -> LeaseRoot:
        """The folder that the connection names."""
        return LeaseRoot(self._connection, self._fields)

    @property
    def _example_table(self) -> str:
        return "/check" if self.service.root.is_local else "s3a://bucket/check"

    def _service_lock(self) -> StorageLock:
        return StorageLock(self._fields)

    def _lease_backend(self, lock: HudiLock) -> StorageLeases:  # noqa: ARG002 - they never overlap
        return StorageLeases(self.service)


@dataclass(frozen=True, slots=True)
class LeaseRoot:
    """The folder of a connection's leases.

    :param connection: the Airflow connection.
    :param fields: its extra fields.
    """

    connection: Connection
    fields: Fields

    @property
    def url(self) -> str:
        """The folder's URL, or its path on a local disk."""
        return (self.connection.host or "").strip()

    @property
    def root(self) -> Root:
        """What the URL names.

        :raises ConfigurationError: if it names no folder for leases.
        """
        if not self.url:
            raise self.fields.error("lease_root", "is empty", "enter a folder, such as s3://lake/leases")
        with self.named():
            root = parse_root(self.url)
        if ".hoodie" in root.folder.split("/"):
            raise self.fields.error(
                "lease_root",
                f"{self.url} lies in a table's .hoodie, which is Hudi's",
                "enter a folder outside of all tables",
            )
        return root

    def open(self) -> BucketObject | FolderObject:
        """Return the object that holds the leases; nothing is sent to it yet.

        :raises ConfigurationError: if a field is wrong, or the client is not installed.
        """
        root, conn_id = self.root, self.fields.text("storage_conn_id")
        access = storage_access(root.kind, conn_id, self.fields) if conn_id else None
        timeout_s = answer_timeout_s(self.fields)
        with self.named():
            return open_shared_object(self.url, access, timeout_s=timeout_s)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the connection in an error about the address or its credentials."""
        try:
            yield
        except ConfigurationError as error:
            field = "storage_conn_id" if error.field == "credentials" else error.field
            message = error.message.removeprefix(f"{error.field}: ")
            raise self.fields.error(field, message, error.remedy) from error


@dataclass(frozen=True, slots=True)
class StorageLock:
    """Hudi's lock in the storage of each table, by the scheme of its path.

    :param fields: of the connection.
    """

    fields: Fields

    def options(self, table: str) -> dict[str, str]:
        """Return the options of the lock provider of the table's scheme."""
        scheme, path = parse_table_path(table)
        if scheme in OBJECT_LOCK_SCHEMES:
            return storage_lock_options(
                wait_time_ms=self.fields.number("wait_time_ms", 60_000, at_least=1),
                num_retries=self.fields.number("num_retries", 50),
            )
        if scheme in FILE_LOCK_SCHEMES:
            return self._file_options()
        raise self.fields.error(
            "type",
            f"Hudi has no lock in the storage of {path}",
            "use a connection of ZooKeeper or of a Hive metastore, or enter another lock of Hudi",
        )

    def view(self, table: str, table_name: str) -> None:  # noqa: ARG002
        """Return ``None``: the lock is a file of the table, read with its own credentials."""
        return

    def _file_options(self) -> dict[str, str]:
        expire_min = self.fields.number("lock_expire_min", 10, at_least=1)
        least = expire_min * _RETRIES_A_MINUTE + 1
        num_retries = self.fields.number("num_retries", 2 * expire_min * _RETRIES_A_MINUTE)
        if num_retries < least:
            raise self.fields.error(
                "num_retries",
                f"a writer gives up after {num_retries * RETRY_S} s and then deletes the lock of "
                f"another writer, while that of a killed one expires after {expire_min * 60} s",
                f"enter {least} or more, or leave it empty",
            )
        return file_lock_options(expire_min=expire_min, num_retries=num_retries)


@dataclass(frozen=True, slots=True)
class StorageLeases:
    """The leases in a folder.

    :param service: the folder.
    """

    service: LeaseRoot

    def terms(self) -> Terms:
        """Return the TTLs of the leases, by default those of the folder's storage."""
        fields, pace = self.service.fields, self.service.root.pace
        lease_s = ttl_s(fields, "lease_ttl_s", pace.ttl_s)
        claim_s = fields.number("claim_ttl_s", max(pace.claim_ttl_s, lease_s), at_least=lease_s)
        return Terms(lease_s * 1000, claim_s * 1000)

    def open(self) -> Queue:
        """Open the queue of leases; the caller closes it."""
        from airflow_occ_provider.leases.queue import Queue
        from airflow_occ_provider.leases.storage.shared_ledger import StorageStore

        shared, pace = self.service.open(), self.service.root.pace
        timeout_s, lease_s = answer_timeout_s(self.service.fields), self.terms().ttl_ms / 1000
        gather_s = min(pace.gather_s, lease_s / _GATHERS_PER_TTL)
        return Queue(StorageStore(shared, self._poll_s, timeout_s, gather_s))

    def validate(self) -> None:
        """Check the fields, and that the client is installed."""
        self.terms()
        _ = self._poll_s
        self.service.open()

    def test(self) -> str:
        """Check that the storage refuses a write whose condition does not hold."""
        from airflow_occ_provider.leases.storage.conditions import check_conditions

        shared, race_s = self.service.open(), answer_timeout_s(self.service.fields)
        with self.service.named():
            return check_conditions(shared, race_s=race_s)

    @property
    def _poll_s(self) -> int:
        fields, pace = self.service.fields, self.service.root.pace
        return fields.number("lease_poll_s", pace.poll_s, at_least=1)


def storage_access(kind: type[Access] | None, conn_id: str, fields: Fields) -> Access:
    """Return the credentials of an Airflow connection.

    :param kind: what the storage needs; ``None`` for a local folder.
    :param conn_id: id of the connection, of the type ``aws``, ``google_cloud_platform`` or ``wasb``.
    :param fields: of the lock connection, which errors name.
    :raises ConfigurationError: if there is no such connection, it is one of another storage, or it has
        credentials of a form that cannot be read.
    """
    if kind is None:
        raise fields.error(_FIELD, f"{conn_id!r} is given for a local folder", "leave it empty")
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        remedy = "create it under Admin > Connections"
        raise fields.error(_FIELD, f"connection {conn_id!r} does not exist", remedy) from error
    expected, read = _READERS[kind]
    if connection.conn_type != expected:
        raise fields.error(
            _FIELD,
            f"connection {conn_id!r} has the type {connection.conn_type!r}",
            f"use one of the type {expected!r} for this lease root",
        )
    return read(_Given(connection, fields))


class _Given(NamedTuple):
    """The storage's connection, and the fields of the lock connection for errors."""

    connection: Connection
    fields: Fields

    def text(self, name: str, prefix: str) -> str:
        """Return a value of the connection's extra; older forms add a prefix to its name."""
        extra = self.connection.extra_dejson
        value = extra.get(name) or extra.get(f"extra__{prefix}__{name}") or ""
        return value if isinstance(value, str) else json.dumps(value)

    def error(self, message: str, remedy: str = _OF_THE_PROCESS) -> ConfigurationError:
        return self.fields.error(_FIELD, f"connection {self.connection.conn_id!r}: {message}", remedy)

    def refuse(self, names: Iterable[str], prefix: str, remedy: str) -> None:
        """Refuse a form of credentials that is not read."""
        for name in names:
            if self.text(name, prefix):
                raise self.error(f"{name} is not read for leases", f"{remedy}, or {_OF_THE_PROCESS}")


def _s3(given: _Given) -> S3Access:
    try:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
    except ImportError as error:
        raise given.error(
            f"a package is not installed ({error})", "pip install apache-airflow-providers-amazon"
        ) from error
    hook = AwsBaseHook(aws_conn_id=given.connection.conn_id, client_type="s3")
    session, wrapper = hook.get_session(), hook.conn_config
    credentials = session.get_credentials()
    if credentials is None:
        raise given.error("it has no credentials, nor has the process", "enter a key in it")
    addressing = (wrapper.extra_config.get("config_kwargs") or {}).get("s3") or {}
    return S3Access(
        provider=partial(_current, credentials),
        endpoint=wrapper.get_service_endpoint_url(service_name="s3") or "",
        region=session.region_name or "",
        path_style=addressing.get("addressing_style") != "virtual",
    )


def _current(credentials: Any) -> dict[str, Any]:
    """Return the credentials of a session, which renews them itself."""
    now = credentials.get_frozen_credentials()
    return {
        "access_key_id": now.access_key,
        "secret_access_key": now.secret_key,
        "token": now.token,
        "expires_at": datetime.now(UTC) + _KEPT,
    }


def _gcs(given: _Given) -> GcsAccess:
    prefix = "google_cloud_platform"
    endpoint = given.text("gcs.endpoint", prefix)
    unread = _GCS_UNREAD if endpoint else (*_GCS_UNREAD, "is_anonymous")
    given.refuse(unread, prefix, "enter keyfile_dict or key_path")
    key = given.text("keyfile_dict", prefix)
    try:
        json.loads(key or "{}")
    except ValueError:
        raise given.error("keyfile_dict is not JSON", "enter the key as it was downloaded") from None
    return GcsAccess(key=key, key_path=given.text("key_path", prefix), endpoint=endpoint)


def _azure(given: _Given) -> AzureAccess:
    given.refuse(_AZURE_UNREAD, "wasb", "enter login and password, sas_token or connection_string")
    if written := given.text("connection_string", "wasb"):
        parts = dict(one.split("=", 1) for one in written.split(";") if "=" in one)
        endpoint, suffix = parts.get("BlobEndpoint", ""), parts.get("EndpointSuffix", "")
        account = parts.get("AccountName", "")
        if suffix and not endpoint:
            host = AzureHost.of(f"{account}.blob.{suffix}")
            endpoint = host.endpoint if host else ""
        return AzureAccess(
            account=account,
            key=parts.get("AccountKey", ""),
            sas=parts.get("SharedAccessSignature", ""),
            endpoint=endpoint,
        )
    login, password = given.connection.login or "", given.connection.password or ""
    account, endpoint, authority = _azure_address(given.connection.host or "")
    if tenant := given.text("tenant_id", "wasb"):
        return AzureAccess(
            account,
            endpoint=endpoint,
            authority=authority,
            client_id=login,
            client_secret=password,
            tenant_id=tenant,
        )
    key = given.text("shared_access_key", "wasb") or password
    sas = given.text("sas_token", "wasb").rpartition("?")[2]
    return AzureAccess(account or login, "" if sas else key, sas, endpoint=endpoint)


def _azure_address(host: str) -> AzureHost:
    """Return the account of a connection's host, with the URL of a server that is not Azure's."""
    url = urlsplit(host if "://" in host else f"https://{host}")
    if azure := AzureHost.of(url.hostname or ""):
        return azure
    return AzureHost(url.path.strip("/"), host) if "://" in host else AzureHost("")


_READERS: dict[type[Access], tuple[str, Callable[[_Given], Access]]] = {
    S3Access: ("aws", _s3),
    GcsAccess: ("google_cloud_platform", _gcs),
    AzureAccess: ("wasb", _azure),
}
