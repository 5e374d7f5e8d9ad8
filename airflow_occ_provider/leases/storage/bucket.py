"""The shared object in an object store, by obstore."""

from __future__ import annotations

import posixpath
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.storage.address import (
    AzureAccess,
    AzureHost,
    GcsAccess,
    S3Access,
    StorageAccess,
)
from airflow_occ_provider.leases.storage.objects import ObjectContent, SupersededError, UnansweredError

if TYPE_CHECKING:
    from airflow_occ_provider.leases.storage.address import Root

_CONNECT_TIMEOUT_S = 5.0


class BucketObject:
    """A ``SharedObject`` of a bucket.

    :param store: obstore's, which does not retry: a repeated request could not be told from another's.
    :param key: of the object.
    :param place: its URL, for messages.
    """

    def __init__(self, store: Any, key: str, place: str) -> None:
        self._store = store
        self._key = key
        self.place = place

    def read(self, tag: str) -> ObjectContent | None:
        """Return the object, or ``None`` if it still has a known tag."""
        options: Any = {"if_none_match": _parts(tag)["e_tag"]} if tag else {}
        try:
            answer = obstore.get(self._store, self._key, options=options)
            return ObjectContent(bytes(answer.bytes()), _tag(answer.meta))
        except NotModifiedError:
            return None
        except FileNotFoundError:
            return ObjectContent(b"", "")
        except BaseError as error:
            raise self._translated(error) from None

    def write(self, data: bytes, tag: str) -> str:
        """Replace the object, and return its new tag."""
        mode: Any = _parts(tag) if tag else "create"
        try:
            return _tag(obstore.put(self._store, self._key, data, mode=mode, use_multipart=False))
        except (AlreadyExistsError, PreconditionError):
            raise SupersededError(self.place) from None
        except FileNotFoundError as error:
            if tag:  # it was deleted
                raise SupersededError(self.place) from None
            raise ConfigurationError(
                "lease_root", f"{self.place}: {_reason(error)}", remedy="create the bucket"
            ) from None
        except BaseError as error:
            raise self._translated(error) from None

    def beside(self, name: str) -> Self:
        """Return another object in the same folder."""
        folder, place = posixpath.dirname(self._key), posixpath.dirname(self.place)
        return type(self)(self._store, posixpath.join(folder, name), f"{place}/{name}")

    def delete(self) -> None:
        """Delete the object, if it exists."""
        try:
            obstore.delete(self._store, self._key)
        except FileNotFoundError:
            pass
        except BaseError as error:
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> Exception:
        reason = _reason(error)
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return ConfigurationError(
                "credentials",
                f"{self.place} refuses them: {reason}",
                remedy="correct them, or allow them to read, write and list in that folder",
            )
        if isinstance(error, NotSupportedError):
            return ConfigurationError(
                "lease_root",
                f"{self.place} cannot replace an object on a condition: {reason}",
                remedy="use a storage with conditional writes",
            )
        return UnansweredError(reason)


def _tag(written: Any) -> str:
    """Return what a condition needs: Google's store its version, the others their ETag."""
    return f"{written.get('version') or ''} {written['e_tag']}"


def _parts(tag: str) -> dict[str, str]:
    version, _, e_tag = tag.partition(" ")
    return {"e_tag": e_tag, **({"version": version} if version else {})}


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]


def open_bucket(root: Root, access: StorageAccess, key: str, timeout_s: float) -> BucketObject:
    """Return an object in a bucket.

    :param root: the bucket.
    :param access: the way to it.
    :param key: of the object.
    :param timeout_s: seconds for each request.
    :raises ConfigurationError: if a value is wrong.
    """
    if access.endpoint and urlsplit(access.endpoint).scheme not in ("http", "https"):
        raise _wrong(f"the endpoint {access.endpoint!r} is no http or https URL")
    try:
        store, place = _opened(root, access, timeout_s)
    except (BaseError, ValueError) as error:
        raise _wrong(str(error).partition("\n")[0]) from None
    return BucketObject(store, key, f"{place}/{key}")


def _opened(root: Root, access: StorageAccess, timeout_s: float) -> tuple[Any, str]:
    options: dict[str, Any] = {
        "client_options": {
            "allow_http": access.endpoint.startswith("http:"),
            "timeout": timedelta(seconds=timeout_s),
            "connect_timeout": timedelta(seconds=min(timeout_s, _CONNECT_TIMEOUT_S)),
        },
        # A repeated request could not be told from another client's.
        "retry_config": {"max_retries": 0},
    }
    if access.provider:
        options["credential_provider"] = access.provider
    if isinstance(access, S3Access):
        return _s3(root, access, options), f"s3://{root.bucket}"
    if isinstance(access, GcsAccess):
        return _gcs(root, access, options), f"gs://{root.bucket}"
    host = _azure_host(root, access)
    return _azure(root, access, host, options), f"az://{root.bucket}@{host.account}"


def _s3(root: Root, access: S3Access, options: dict[str, Any]) -> S3Store:
    if bool(access.key) != bool(access.secret):
        raise _wrong("of the access key and its secret, one is empty")
    if access.key:
        # Not as settings: a session token among the process's variables would be added to them.
        keys = {"access_key_id": access.key, "secret_access_key": access.secret}
        options["credential_provider"] = lambda: {
            **keys,
            "token": access.token or None,
            "expires_at": None,
        }
    config: dict[str, Any] = {
        "endpoint": _s3_endpoint(root, access),
        "region": access.region,
        "virtual_hosted_style_request": not access.path_style,
    }
    return S3Store(root.bucket, config=_filled(config), **options)


def _s3_endpoint(root: Root, access: S3Access) -> str:
    """Return the endpoint, with the bucket if that is a part of the host name."""
    if not access.endpoint or access.path_style:
        return access.endpoint
    url = urlsplit(access.endpoint)
    return url._replace(netloc=f"{root.bucket}.{url.netloc}").geturl()


def _gcs(root: Root, access: GcsAccess, options: dict[str, Any]) -> GCSStore:
    if access.key and access.key_path:
        raise _wrong("a service account's key and a file with one are both given")
    if access.endpoint and not (access.key or access.key_path or access.provider):
        # The client asks for a token before it writes, also if it shall not sign.
        options["credential_provider"] = lambda: {"token": "none", "expires_at": None}
    config: dict[str, Any] = {
        "base_url": access.endpoint,
        "service_account_key": access.key,
        "service_account": access.key_path,
    }
    return GCSStore(root.bucket, config=_filled(config), **options)


def _azure_host(root: Root, access: AzureAccess) -> AzureHost:
    """Return the account that the URL and the connection name, and its endpoint.

    The connection's endpoint goes first: it may be a proxy, or an emulator. Credentials of one account
    are not sent to another one.
    """
    named = AzureHost(access.account, access.endpoint, access.authority)
    of_url = root.azure or AzureHost("")
    if not (of_url.account or named.account):
        raise _wrong("no storage account is named")
    if of_url.account and named.account and of_url.account.lower() != named.account.lower():
        raise _wrong(
            f"they are of the account {named.account}, but the URL names the account {of_url.account}"
        )
    return AzureHost(
        named.account or of_url.account,
        named.endpoint or of_url.endpoint,
        named.authority or of_url.authority,
    )


def _azure(root: Root, access: AzureAccess, host: AzureHost, options: dict[str, Any]) -> AzureStore:
    if bool(access.client_id) != bool(access.client_secret and access.tenant_id):
        raise _wrong("of a service principal, the id, the secret or the tenant is empty")
    config: dict[str, Any] = {
        "account_name": host.account,
        "account_key": access.key,
        "sas_key": access.sas.removeprefix("?"),
        "client_id": access.client_id,
        "client_secret": access.client_secret,
        "tenant_id": access.tenant_id,
        "endpoint": host.endpoint,
        "authority_host": host.authority if access.client_id else "",
        "credential_type": _azure_kind(access),
    }
    return AzureStore(root.bucket, config=_filled(config), **options)


def _azure_kind(access: AzureAccess) -> str:
    """Return which credentials are used, so that no variable of the process goes before them."""
    credentials = {
        "access_key": access.key,
        "sas_token": access.sas,
        "client_secret": access.client_id,
    }
    kinds = [kind for kind, value in credentials.items() if value]
    if len(kinds) > 1:
        raise _wrong(f"more than one kind of credentials is given: {', '.join(kinds)}")
    return kinds[0] if kinds else ""


def _filled(config: dict[str, Any]) -> Any:
    return {name: value for name, value in config.items() if value != ""}


def _wrong(message: str) -> ConfigurationError:
    return ConfigurationError("credentials", message, remedy="correct the storage's connection")
