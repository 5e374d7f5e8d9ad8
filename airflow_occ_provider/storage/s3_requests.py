"""Reads and lists objects of S3 without the further requests that s3fs makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PAGE_KEYS = 1000
"""The most keys that S3 returns in one request."""


def is_s3(file_system: Any) -> bool:
    """Whether an fsspec file system is s3fs's."""
    return hasattr(file_system, "call_s3")


def lists_in_order(file_system: Any, path: str) -> bool:
    """Whether a folder can be listed from a key on; S3's directory buckets cannot."""
    return is_s3(file_system) and not file_system.split_path(path)[0].endswith("--x-s3")


def read_file(file_system: Any, path: str, start: int = 0) -> bytes:
    """Return a file's content; s3fs alone would ask for its size first.

    :param file_system: any of fsspec.
    :param start: the first byte that is returned; the file has it.
    :raises FileNotFoundError: if there is no such file.
    """
    more = {"max_concurrency": 1} if hasattr(file_system, "max_concurrency") else {}
    if start:
        more["start"] = start
    content: bytes = file_system.cat_file(path, **more)
    return content


def list_objects(
    file_system: Any, path: str, *, stem: str = "", after: str = "", delimiter: str = "/"
) -> dict[str, Mapping[str, Any]]:
    """Return the entries of a folder by name, in one request a page.

    s3fs's own ``ls`` also lists the parent of an empty folder, and its ``find`` asks two times more.

    :param path: the folder, as bucket and key; names are relative to it.
    :param stem: only names that begin with it are listed.
    :param after: only names that sort after it are listed.
    :param delimiter: ``""`` to list the folders below, too.
    :raises FileNotFoundError: if nothing is listed.
    """
    bucket, key, _ = file_system.split_path(path)
    folder = f"{key}/" if key else ""
    request = {"Bucket": bucket, "Prefix": folder + stem, "Delimiter": delimiter}
    if after:
        request["StartAfter"] = folder + after
    entries: dict[str, Mapping[str, Any]] = {}
    while True:
        page = file_system.call_s3("list_objects_v2", **request)
        entries |= {entry["Key"]: entry for entry in page.get("Contents", ())}
        entries |= {entry["Prefix"].rstrip("/"): {} for entry in page.get("CommonPrefixes", ())}
        if not page.get("IsTruncated"):
            break
        request["ContinuationToken"] = page["NextContinuationToken"]
    if not entries:
        raise FileNotFoundError(path)
    # An object with the folder's own key marks that the folder exists.
    return {name[len(folder) :]: entry for name, entry in entries.items() if name != folder}
