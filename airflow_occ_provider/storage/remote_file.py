"""Opens a file that is no part of a table, by its URL."""

from __future__ import annotations

from typing import Any, BinaryIO, cast


def open_remote(url: str, file_system: Any = None) -> BinaryIO:
    """Open a file for reading.

    :param url: of any storage that fsspec knows.
    :param file_system: of fsspec; by default one with the credentials that the worker itself has.
    :raises OSError: if it is not there, or the storage cannot be read from here.
    """
    import fsspec

    try:
        opened = file_system.open(url, "rb") if file_system else fsspec.open(url, "rb").open()
        return cast("BinaryIO", opened)
    except OSError:
        raise
    except Exception as error:  # each client has errors of its own
        raise OSError(f"{url.partition('://')[0]}: {type(error).__name__}: {error}") from error
