"""Opens a file that is no part of a table, by its URL."""

from __future__ import annotations

from typing import BinaryIO, cast


def open_remote(url: str) -> BinaryIO:
    """Open a file for reading, with the credentials that the worker itself has.

    :param url: of any storage that fsspec knows.
    :raises OSError: if it is not there, or the storage cannot be read from here.
    """
    import fsspec

    try:
        return cast("BinaryIO", fsspec.open(url, "rb").open())
    except OSError:
        raise
    except Exception as error:  # each client has errors of its own
        raise OSError(f"{url.partition('://')[0]}: {type(error).__name__}: {error}") from error
