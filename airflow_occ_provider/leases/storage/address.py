"""The address of a lease root, and the way to its storage."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.lease import Terms

Provider: TypeAlias = Callable[[], Any]
"""A credential provider of obstore, such as ``obstore.auth.boto3.Boto3CredentialProvider``."""

_PUBLIC_CLOUD = "core.windows.net"
# A zone, as in lake.z01.blob.storage.azure.net, is a part of the endpoint.
_AZURE_HOST = re.compile(
    r"(?P<account>[a-z0-9-]+)(?P<zone>\.z\d+)?(?:\.privatelink)?\.(?:blob|dfs)\.(?P<cloud>[a-z0-9-]+(?:\.[a-z0-9-]+)+)"
)
_AUTHORITIES = {
    "core.chinacloudapi.cn": "https://login.chinacloudapi.cn",
    "core.usgovcloudapi.net": "https://login.microsoftonline.us",
}


@dataclass(frozen=True, slots=True)
class S3Access:
    """The way to an S3 bucket.

    Without a key and a provider, the credentials are those of the process: its ``AWS_*`` variables, or
    the role of its machine or pod.

    :param key: access key id; its secret and token are then the given ones, never the process's.
    :param secret: of the key.
    :param token: session token of a temporary key.
    :param provider: called for credentials, also when they expire; instead of a key.
    :param endpoint: URL of a server other than Amazon's, such as ``http://127.0.0.1:9000``.
    :param region: of the bucket; by default that of the process, or ``us-east-1``.
    :param path_style: whether the bucket is a part of the URL's path, not of its host name.
    """

    key: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    provider: Provider | None = field(default=None, repr=False)
    endpoint: str = ""
    region: str = ""
    path_style: bool = True


@dataclass(frozen=True, slots=True)
class GcsAccess:
    """The way to a bucket of Google Cloud Storage.

    Without any of the first three, the credentials are Google's application default.

    :param key: a service account's key, as JSON text.
    :param key_path: file with such a key.
    :param provider: called for credentials, also when they expire.
    :param endpoint: URL of an emulator; without given credentials it gets none of the process.
    """

    key: str = field(default="", repr=False)
    key_path: str = ""
    provider: Provider | None = field(default=None, repr=False)
    endpoint: str = ""


@dataclass(frozen=True, slots=True)
class AzureAccess:
    """The way to a container of Azure Blob Storage.

    Without any credentials, they are those of the process: its ``AZURE_*`` variables, or its managed
    identity.

    :param account: name of the storage account; by default the one that the URL names.
    :param key: of the account.
    :param sas: a shared access signature, percent-encoded as the portal shows it.
    :param client_id: of a service principal, with ``client_secret`` and ``tenant_id``.
    :param client_secret: of the service principal.
    :param tenant_id: of the service principal.
    :param provider: called for credentials, also when they expire.
    :param endpoint: URL of another server, including the account: ``http://127.0.0.1:10000/account``.
    :param authority: URL where a service principal gets its token; by default that of the public cloud.
    """

    account: str = ""
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    tenant_id: str = ""
    provider: Provider | None = field(default=None, repr=False)
    endpoint: str = ""
    authority: str = ""


class AzureHost(NamedTuple):
    """A storage account of Azure, and the endpoint of its blobs.

    :param account: its name.
    :param endpoint: its URL; empty in the public cloud, which the client knows.
    :param authority: where a service principal of that cloud gets its token; empty in the public one.
    """

    account: str
    endpoint: str = ""
    authority: str = ""

    @classmethod
    def of(cls, host: str) -> AzureHost | None:
        """Return what a host name names; ``None`` if it is no host of a storage account.

        ``lake.dfs.core.chinacloudapi.cn`` and ``lake.blob.core.chinacloudapi.cn`` are one account, and
        its blobs are served by the second one. A private link's name is that of its account.
        """
        match = _AZURE_HOST.fullmatch(host.lower())
        if match is None:
            return None
        account, cloud = match["account"], match["cloud"]
        if cloud == _PUBLIC_CLOUD:
            return cls(account)
        endpoint = f"https://{account}{match['zone'] or ''}.blob.{cloud}"
        return cls(account, endpoint, _AUTHORITIES.get(cloud, ""))


StorageAccess: TypeAlias = S3Access | GcsAccess | AzureAccess


_KINDS: dict[str, type[S3Access | GcsAccess | AzureAccess]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), S3Access),
    **dict.fromkeys(("gs", "gcs"), GcsAccess),
    **dict.fromkeys(("az", "abfs", "abfss", "wasb", "wasbs"), AzureAccess),
}
_AUTHORITY = re.compile(r"(?:(?P<container>[^@:/]+)@)?(?P<host>[^@:/]+)")
_EXAMPLE = "name a folder, such as s3://lake/leases or /srv/leases"


@dataclass(frozen=True, slots=True)
class LeasePace:
    """How often the queue of a root looks and writes, by default.

    :param ttl_s: seconds without a renewal after which a lease expires; a third of it is between two.
    :param claim_ttl_s: the same, while the lease passes from one process to the next.
    :param poll_s: the most seconds between two looks for the end of another request.
    :param gather_s: seconds between two writes of renewals, after some without a pause.
    """

    ttl_s: int
    claim_ttl_s: int
    poll_s: int
    gather_s: float

    @property
    def terms(self) -> Terms:
        """The TTLs."""
        return Terms(self.ttl_s * 1000, self.claim_ttl_s * 1000)


LOCAL_PACE = LeasePace(ttl_s=60, claim_ttl_s=600, poll_s=1, gather_s=0.0)
# A waiter costs six requests a minute at most, a holder four.
BUCKET_PACE = LeasePace(ttl_s=180, claim_ttl_s=600, poll_s=15, gather_s=2.0)


@dataclass(frozen=True, slots=True)
class Root:
    """The folder of a lease root.

    :param kind: the kind of access that its store needs; ``None`` for a local folder.
    :param bucket: or container.
    :param folder: its path in the bucket without slashes around it, or in the file system.
    :param azure: the storage account of Azure, if the URL names it.
    """

    kind: type[StorageAccess] | None
    bucket: str
    folder: str
    azure: AzureHost | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this host's file system."""
        return self.kind is None

    @property
    def pace(self) -> LeasePace:
        """How often its queue looks and writes, by default."""
        return LOCAL_PACE if self.is_local else BUCKET_PACE


def parse_root(root: str) -> Root:
    """Return what a lease root names.

    :param root: a URL of the scheme s3, s3a, gs, az, abfs, abfss, wasb, wasbs or file, or an absolute
        path.
    :raises ConfigurationError: if it is none of these; the message does not repeat a password in it.
    """
    url = urlsplit(root.strip())
    if not url.scheme or url.scheme == "file":
        return _local(root.strip(), unquote(url.path) if url.scheme else url.path, url.netloc)
    kind = _KINDS.get(url.scheme.lower())
    if kind is None:
        raise _wrong(f"{url.scheme}:// is no storage that can keep leases", _EXAMPLE)
    if url.query or url.fragment or url.password is not None:
        raise _wrong("the URL holds more than a bucket and a folder", _EXAMPLE)
    match = _AUTHORITY.fullmatch(url.netloc)
    if match is None or (match["container"] and kind is not AzureAccess):
        raise _wrong("the URL names no bucket", _EXAMPLE)
    folder = posixpath.normpath(f"/{url.path}").strip("/")
    if match["container"] is None:
        return Root(kind, match["host"], folder)
    host = match["host"]
    azure = AzureHost.of(host) if "." in host else AzureHost(host)
    if azure is None:
        raise _wrong(
            f"{host} is no host of a storage account of Azure",
            "name one such as abfss://container@account.dfs.core.windows.net/leases, or the account "
            "alone, and another server in the connection of storage_conn_id",
        )
    return Root(kind, match["container"], folder, azure)


def _local(root: str, path: str, host: str) -> Root:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise _wrong(f"{root!r} is neither a URL nor an absolute path", _EXAMPLE)
    return Root(None, "", posixpath.normpath(path))


def _wrong(message: str, remedy: str) -> ConfigurationError:
    return ConfigurationError("lease_root", message, remedy=remedy)
