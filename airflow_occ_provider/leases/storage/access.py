"""The way to an object store: its address and credentials, as plain values."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

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


Access: TypeAlias = S3Access | GcsAccess | AzureAccess
