"""The shared object in an object store, by obstore."""

from __future__ import annotations

from typing import Any

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
        try:
            found = obstore.get(
                self._store, self._key, options={"if_none_match": known} if known else {}
            )
            return Content(bytes(found.bytes()), str(found.meta["e_tag"]))
        except NotModifiedError:
            return None
        except FileNotFoundError:
            return Content(b"", "")
        except BaseError as error:
            raise self._translated(error) from None

    def write(self, data: bytes, tag: str) -> str:
        """Replace the object, and return its new tag."""
        mode: Any = {"e_tag": tag} if tag else "create"
        try:
            return str(
                obstore.put(self._store, self._key, data, mode=mode, use_multipart=False)["e_tag"]
            )
        except (AlreadyExistsError, PreconditionError, FileNotFoundError):
            raise SupersededError(self.place) from None
        except BaseError as error:
            raise self._translated(error) from None

    def _translated(self, error: Exception) -> Exception:
        reason = str(error).partition("\n")[0]
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return ConfigurationError(
                "credentials", f"{self.place} refuses them: {reason}", remedy="correct the connection"
            )
        if isinstance(error, NotSupportedError):
            return ConfigurationError(
                "lease_root",
                f"{self.place} cannot replace an object on a condition: {reason}",
                remedy="use a storage with conditional writes",
            )
        return UnansweredError(reason)
