"""The connection ``hudi_storage_lock``: no lock service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_occ_provider.attempts.locks import StorageLock
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import HudiLockHook, answer_timeout_s, ttl_s
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.storage.address import (
    AzureAccess,
    AzureHost,
    GcsAccess,
    Root,
    S3Access,
    StorageAccess,
    parse_root,
)
from airflow_occ_provider.leases.storage.backend import StorageLeases

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_occ_provider.hooks.hudi_lock import Fields

_FIELD = "storage_conn_id"
_KEPT = timedelta(minutes=5)
_OF_THE_PROCESS = "leave storage_conn_id empty, for the credentials of the process"
_GCS_UNREAD = ("key_secret_name", "credential_config_file", "impersonation_chain", "idp_issuer_url")
_AZURE_UNREAD = ("managed_identity_client_id", "workload_identity_tenant_id")


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
    def root(self) -> Root:
        """What the connection's URL names.

        :raises ConfigurationError: if it names no folder for leases.
        """
        if not self._url:
            raise self.fields.error("lease_root", "is empty", "enter a folder, such as s3://lake/leases")
        with self.fields.named():
            return parse_root(self._url)

    @property
    def _url(self) -> str:
        return (self.connection.host or "").strip()

    @property
    def example_table(self) -> str:
        """A table in a storage like that of the leases."""
        return "/check" if self.root.is_local else "s3a://bucket/check"

    def service_lock(self) -> StorageLock:
        """Return Hudi's lock beside each table."""
        fields = self.fields
        return StorageLock(
            fields.number("wait_time_ms", 60_000, at_least=1),
            fields.number("num_retries", 50) if fields.has("num_retries") else None,
            fields.number("lock_expire_min", 10, at_least=1),
        )

    def service_leases(self) -> StorageLeases:
        """Return the leases in the lease root."""
        fields, pace = self.fields, self.root.pace
        lease_s = ttl_s(fields, "lease_ttl_s", pace.ttl_s)
        claim_s = fields.number("claim_ttl_s", max(pace.claim_ttl_s, lease_s), at_least=lease_s)
        conn_id = fields.text(_FIELD)
        return StorageLeases(
            self._url,
            storage_access(self.root.kind, conn_id, fields) if conn_id else None,
            Terms(lease_s * 1000, claim_s * 1000),
            fields.number("lease_poll_s", pace.poll_s, at_least=1),
            answer_timeout_s(fields),
        )


def storage_access(kind: type[StorageAccess] | None, conn_id: str, fields: Fields) -> StorageAccess:
    """Return the credentials of an Airflow connection.

    :param kind: what the storage needs; ``None`` for a local folder.
    :param conn_id: id of the connection, of the type ``aws``, ``google_cloud_platform`` or ``wasb``.
    :param fields: of the lock connection, which errors name.
    :raises ConfigurationError: if there is no such connection, it is one of another storage, or it has
        credentials of a form that cannot be read.
    """
    if kind is None:
        raise fields.error(_FIELD, f"{conn_id!r} is given for a local folder", "leave it empty")
    expected, read = _READERS[kind]
    return read(_StorageConnection(connection_of(conn_id, expected, fields), fields))


def connection_of(conn_id: str, expected: str, fields: Fields) -> Connection:
    """Return the Airflow connection with the credentials for leases.

    :param expected: its type.
    :param fields: of the lock connection, which errors name.
    :raises ConfigurationError: if there is no such connection, or it has another type.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        remedy = "create it under Admin > Connections"
        raise fields.error(_FIELD, f"connection {conn_id!r} does not exist", remedy) from error
    if connection.conn_type != expected:
        raise fields.error(
            _FIELD,
            f"connection {conn_id!r} has the type {connection.conn_type!r}",
            f"use one of the type {expected!r} for these leases",
        )
    return connection


def aws_hook(conn_id: str, service: str, fields: Fields) -> Any:
    """Return Airflow's hook of a connection to AWS.

    :param service: of Amazon, such as ``s3``.
    :param fields: of the lock connection, which errors name.
    :raises ConfigurationError: if the package with the hook is not installed.
    """
    try:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook
    except ImportError as error:
        remedy = "pip install apache-airflow-providers-amazon"
        raise fields.error(_FIELD, f"a package is not installed ({error})", remedy) from error
    return AwsBaseHook(aws_conn_id=conn_id, client_type=service)


class _StorageConnection(NamedTuple):
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


def _s3(storage: _StorageConnection) -> S3Access:
    hook = aws_hook(storage.connection.conn_id, "s3", storage.fields)
    session, wrapper = hook.get_session(), hook.conn_config
    credentials = session.get_credentials()
    if credentials is None:
        raise storage.error("it has no credentials, nor has the process", "enter a key in it")
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


def _gcs(storage: _StorageConnection) -> GcsAccess:
    prefix = "google_cloud_platform"
    endpoint = storage.text("gcs.endpoint", prefix)
    unread = _GCS_UNREAD if endpoint else (*_GCS_UNREAD, "is_anonymous")
    storage.refuse(unread, prefix, "enter keyfile_dict or key_path")
    key = storage.text("keyfile_dict", prefix)
    try:
        json.loads(key or "{}")
    except ValueError:
        raise storage.error("keyfile_dict is not JSON", "enter the key as it was downloaded") from None
    return GcsAccess(key=key, key_path=storage.text("key_path", prefix), endpoint=endpoint)


def _azure(storage: _StorageConnection) -> AzureAccess:
    storage.refuse(_AZURE_UNREAD, "wasb", "enter login and password, sas_token or connection_string")
    if written := storage.text("connection_string", "wasb"):
        parts = dict(part.split("=", 1) for part in written.split(";") if "=" in part)
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
    login, password = storage.connection.login or "", storage.connection.password or ""
    account, endpoint, authority = _azure_address(storage.connection.host or "")
    if tenant := storage.text("tenant_id", "wasb"):
        return AzureAccess(
            account,
            endpoint=endpoint,
            authority=authority,
            client_id=login,
            client_secret=password,
            tenant_id=tenant,
        )
    key = storage.text("shared_access_key", "wasb") or password
    sas = storage.text("sas_token", "wasb").rpartition("?")[2]
    return AzureAccess(account or login, "" if sas else key, sas, endpoint=endpoint)


def _azure_address(host: str) -> AzureHost:
    """Return the account of a connection's host, with the URL of a server that is not Azure's."""
    url = urlsplit(host if "://" in host else f"https://{host}")
    if azure := AzureHost.of(url.hostname or ""):
        return azure
    return AzureHost(url.path.strip("/"), host) if "://" in host else AzureHost("")


_READERS: dict[type[StorageAccess], tuple[str, Callable[[_StorageConnection], StorageAccess]]] = {
    S3Access: ("aws", _s3),
    GcsAccess: ("google_cloud_platform", _gcs),
    AzureAccess: ("wasb", _azure),
}
