"""The shared object in an object store, by obstore."""

from __future__ import annotations

import posixpath
from typing import Any, Self

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

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.storage.shared_object import Content, SupersededError, UnansweredError


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

    def read(self, known: str) -> Content | None:
        """Return the object, or ``None`` if it still has a known tag."""
        options: Any = {"if_none_match": _parts(known)["e_tag"]} if known else {}
        try:
            found = obstore.get(self._store, self._key, options=options)
            return Content(bytes(found.bytes()), _tag(found.meta))
        except NotModifiedError:
            return None
        except FileNotFoundError:
            return Content(b"", "")
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
