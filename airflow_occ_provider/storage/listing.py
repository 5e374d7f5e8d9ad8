"""Lists a folder: its names, and the times of their last writes.

Of a long timeline only the part is listed again in which anything may have changed. Objects of S3 are
read and listed without the further requests that s3fs makes.
"""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, Self

from airflow_occ_provider.hudi.format.timeline import Timeline

PAGE_KEYS = 1000
"""The most keys that S3 returns in one request."""
# The names of the time of the last write in fsspec; only WebHDFS and hdfs-native give milliseconds.
_SECONDS = ("mtime", "LastModified", "last_modified", "updated", "created")
_MILLISECONDS = ("modificationTime", "modification_time")
# Of at most three files each, so that a page has room for hundreds of new files.
_NEWEST = 200
_MOST_OLDER = 8
_UNDOING = ("rollback", "restore")


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


@dataclass(frozen=True, slots=True)
class Listing:
    """The listing of a folder; by default of one that does not exist.

    :param modified: returns the epoch milliseconds of a file's last write; ``None`` if the file is
        gone or its storage does not record the time.
    :param entries: of an object store, what it says of each file.
    :param begun_s: seconds of a monotonic clock at which the whole folder began to be listed.
    :param is_whole: whether all of it was listed at that time.
    """

    names: Sequence[str] = ()
    modified: Callable[[str], int | None] = lambda _: None
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    begun_s: float = field(default_factory=time.monotonic)
    is_whole: bool = True

    @classmethod
    def of_entries(
        cls, entries: Mapping[str, Mapping[str, Any]], begun_s: float, *, is_whole: bool = True
    ) -> Self:
        """Return the listing of an object store's folder."""

        def modified(name: str) -> int | None:
            return _modified(entries.get(name, {}))

        return cls(tuple(entries), modified, entries, begun_s, is_whole)

    def changed(self, unchanged: Iterable[str], listed: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the listing of which a part was listed again.

        :param unchanged: the names that were not.
        """
        entries = {name: self.entries[name] for name in unchanged} | dict(listed)
        return self.of_entries(entries, self.begun_s, is_whole=False)


def list_folder(file_system: Any, path: str) -> Listing:
    """List a folder: on an object store, in one request a page.

    fsspec's listing of a local folder reads the status of each file, which takes most of the time.
    Here only the status of files is read whose time is needed.

    :raises FileNotFoundError: if there is no such folder.
    """
    if is_local(file_system):
        # No Path per name: making it takes longer than listing it.
        names = os.listdir(path)  # noqa: PTH208
        return Listing(names, lambda name: _local_modified(f"{path}/{name}"))
    begun_s = time.monotonic()
    if is_s3(file_system):
        return Listing.of_entries(list_objects(file_system, path), begun_s)
    file_system.invalidate_cache(path)
    entries = {
        posixpath.basename(entry["name"].rstrip("/")): entry
        for entry in file_system.ls(path, detail=True)
        if entry["name"].rstrip("/") != path.rstrip("/")  # the object that marks the folder itself
    }
    return Listing.of_entries(entries, begun_s)


def may_list_changes(file_system: Any, path: str, last: Listing, timeline: Timeline) -> bool:
    """Whether a part of a timeline may be listed alone."""
    long = len(last.names) > PAGE_KEYS and len(timeline.instants) > _NEWEST
    return (
        long
        and lists_in_order(file_system, path)
        and all(instant.completed or instant.action not in _UNDOING for instant in timeline)
    )


def list_changes(file_system: Any, path: str, last: Listing, timeline: Timeline) -> Listing | None:
    """Return a listing of a timeline that allows it, of which a part is listed again.

    It takes one request for the newest instants, and one for each older one that was pending. The
    other files are taken over: only a rollback, a restore, or the archival removes completed instants.

    :param last: the last listing, of the instants of ``timeline``.
    :returns: ``None`` if the whole folder must be listed: instants were taken back; a file disappeared;
        or the storage cannot list a part.
    """
    start = timeline.instants[-_NEWEST].time
    older = {instant.time for instant in timeline if not instant.completed and instant.time <= start}
    if len(older) > _MOST_OLDER:
        return None
    listed = list_objects(file_system, path, after=start)
    if any(name <= start for name in listed):  # a server that does not know the parameter
        return None
    for stem in older:
        listed |= list_objects(file_system, path, stem=stem)
    unchanged = [name for name in last.names if name <= start and _time(name) not in older]
    listed_again = set(last.names).difference(unchanged)
    if listed_again.difference(listed) or _has_undone(set(listed) - listed_again):
        return None
    return last.changed(unchanged, listed)


def _time(name: str) -> str:
    return name.partition(".")[0].partition("_")[0]


def _has_undone(new_names: set[str]) -> bool:
    return any(name.split(".")[1:2] in ([action] for action in _UNDOING) for name in new_names)


class StoredFile(NamedTuple):
    """What a listing says of a file.

    :param written_ms: epoch milliseconds of its last write, by the storage's clock; 0 if unknown.
    :param version: differs once the file was written again. Where the storage has neither its content's
        digest nor fractions of a second, a second write of as many bytes within one does not show.
    """

    written_ms: int
    version: Hashable


def list_files(file_system: Any, path: str) -> dict[str, StoredFile]:
    """List a folder as above, with what shows changes of each file.

    :raises FileNotFoundError: if there is no such folder.
    """
    if not is_local(file_system):
        entries = list_folder(file_system, path).entries
        return {name: _stored(entry) for name, entry in entries.items()}
    files = {}
    with os.scandir(path) as entries_of_disk:
        for file in entries_of_disk:
            with suppress(FileNotFoundError):  # removed meanwhile
                status = file.stat()
                version = status.st_ino, status.st_mtime_ns, status.st_size
                files[file.name] = StoredFile(status.st_mtime_ns // 1_000_000, version)
    return files


def list_files_below(file_system: Any, path: str) -> dict[str, StoredFile]:
    """List all files below a folder of S3, in one request a page.

    The names are their paths relative to it.

    :raises FileNotFoundError: if there are none.
    """
    entries = list_objects(file_system, path, delimiter="")
    return {name: _stored(entry) for name, entry in entries.items()}


def _stored(entry: Mapping[str, Any]) -> StoredFile:
    fields = {key.lower(): value for key, value in entry.items()}
    written_ms = _modified(entry) or 0
    return StoredFile(written_ms, (written_ms, fields.get("size"), fields.get("etag")))


def is_local(file_system: Any) -> bool:
    """Whether an fsspec file system is local to this machine."""
    protocol = file_system.protocol
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def _local_modified(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns // 1_000_000  # noqa: PTH116
    except FileNotFoundError:
        return None


def _modified(entry: Mapping[str, Any]) -> int | None:
    exact = next((entry[key] for key in _MILLISECONDS if key in entry), None)
    if exact is not None:
        return int(exact)
    written = next((entry[key] for key in _SECONDS if entry.get(key)), None)
    if isinstance(written, str):
        written = datetime.fromisoformat(written)
    if isinstance(written, datetime):
        written = written.timestamp()
    return None if written is None else round(written * 1000)
