"""The way to an object store: its address and credentials, as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Provider: TypeAlias = Callable[[], Any]
"""A credential provider of obstore, such as ``obstore.auth.boto3.Boto3CredentialProvider``."""


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
    """

    account: str = ""
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    tenant_id: str = ""
    provider: Provider | None = field(default=None, repr=False)
    endpoint: str = ""


Access: TypeAlias = S3Access | GcsAccess | AzureAccess
