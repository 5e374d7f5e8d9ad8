"""The shared object of a lease root, opened by its address."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from airflow_occ_provider.errors import ConfigurationError, install_extra
from airflow_occ_provider.leases.storage.access import (
    Access,
    AzureAccess,
    AzureHost,
    GcsAccess,
    S3Access,
)
from airflow_occ_provider.leases.storage.folder import FolderObject

if TYPE_CHECKING:
    from airflow_occ_provider.leases.storage.bucket import BucketObject

OBJECT = "queue.json"
_KINDS: dict[str, type[S3Access | GcsAccess | AzureAccess]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), S3Access),
    **dict.fromkeys(("gs", "gcs"), GcsAccess),
    **dict.fromkeys(("az", "abfs", "abfss", "wasb", "wasbs"), AzureAccess),
}
_AUTHORITY = re.compile(r"(?:(?P<container>[^@:/]+)@)?(?P<host>[^@:/]+)")
_EXAMPLE = "name a folder, such as s3://lake/leases or /srv/leases"


@dataclass(frozen=True, slots=True)
class Pace:
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


LOCAL_PACE = Pace(ttl_s=60, claim_ttl_s=600, poll_s=1, gather_s=0.0)
# A waiter costs six requests a minute at most, a holder four.
BUCKET_PACE = Pace(ttl_s=180, claim_ttl_s=600, poll_s=15, gather_s=2.0)


@dataclass(frozen=True, slots=True)
class Root:
    """The folder of a lease root.

    :param kind: the kind of access that its store needs; ``None`` for a local folder.
    :param bucket: or container.
    :param folder: its path in the bucket without slashes around it, or in the file system.
    :param azure: the storage account of Azure, if the URL names it.
    """

    kind: type[Access] | None
    bucket: str
    folder: str
    azure: AzureHost | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this host's file system."""
        return self.kind is None

    @property
    def pace(self) -> Pace:
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


def open_shared_object(
    root: str, access: Access | None = None, *, timeout_s: float = 10.0
) -> BucketObject | FolderObject:
    """Return the object that holds the leases of a root; nothing is sent yet.

    :param root: as for ``parse_root``: the folder of the object.
    :param access: of the kind that the root's store needs; ``None`` for the process's own credentials.
        Ignored for a local folder.
    :param timeout_s: seconds for each request. Requests are not repeated by the client.
    :raises ConfigurationError: if a value is wrong, or the client is not installed.
    """
    named = parse_root(root)
    if named.kind is None:
        return FolderObject(Path(named.folder, OBJECT), timeout_s)
    given = named.kind() if access is None else access
    if not isinstance(given, named.kind):
        raise ConfigurationError(
            "credentials",
            f"they are of {_NAMES[type(given)]}, but {root} is of {_NAMES[named.kind]}",
            remedy="use a connection of that storage",
        )
    try:
        from airflow_occ_provider.leases.storage.clients import open_bucket
    except ImportError as error:
        raise ConfigurationError(
            "lease_root",
            f"{root} needs a client that is not installed ({error})",
            remedy=install_extra("storage"),
        ) from error
    return open_bucket(named, given, posixpath.join(named.folder, OBJECT), timeout_s)


def _local(root: str, path: str, host: str) -> Root:
    if host not in ("", "localhost") or not path.startswith("/"):
        raise _wrong(f"{root!r} is neither a URL nor an absolute path", _EXAMPLE)
    return Root(None, "", posixpath.normpath(path))


def _wrong(message: str, remedy: str) -> ConfigurationError:
    return ConfigurationError("lease_root", message, remedy=remedy)


_NAMES: dict[type, str] = {
    S3Access: "S3",
    GcsAccess: "Google Cloud Storage",
    AzureAccess: "Azure",
}
