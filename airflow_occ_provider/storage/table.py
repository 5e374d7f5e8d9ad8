"""One Hudi table's metadata folder, read through fsspec."""

from __future__ import annotations

import posixpath
import re
import time
from typing import Any

from airflow_occ_provider.errors import ConfigurationError, TableUnreadableError
from airflow_occ_provider.hudi.instant import Instant
from airflow_occ_provider.hudi.metadata import CommitMetadata, read_commit
from airflow_occ_provider.hudi.properties import parse_table_properties
from airflow_occ_provider.hudi.timeline import Timeline

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://.+")
# Hadoop's names for file systems that fsspec knows by another one.
_FSSPEC_SCHEME = {"s3a": "s3", "s3n": "s3", "abfss": "abfs", "wasbs": "abfs", "viewfs": "hdfs"}
_WHOLE = frozenset({"hoodie.table.name", "hoodie.timeline.layout.version"})
_WHOLE_TRIES = 5
_WHOLE_PAUSE_S = 0.2
_UNREADABLE_REMEDY = "check that the worker reaches the storage and may read it"


def parse_table_path(table: object) -> tuple[str, str]:
    """Return the scheme and the canonical form of a table's base path.

    :param table: an absolute path or a URL; trailing slashes do not matter.
    :raises ConfigurationError: for anything else, such as a table's name.
    """
    text = table.rstrip("/") if isinstance(table, str) else ""
    match = _URL.fullmatch(text)
    if match:
        return match["scheme"], text
    if text.startswith("/"):
        return "file", posixpath.normpath(text)
    raise ConfigurationError(
        "table",
        f"{table!r} is not a path",
        remedy="give the table's base path, such as s3a://lake/trips or /lake/trips, not its name",
    )


class HudiTable:
    """Reads one table's metadata; each call looks at the storage anew.

    :param path: the table's base path, absolute or a URL.
    :raises ConfigurationError: if ``path`` is not one, or no fsspec file system knows its scheme.
    """

    def __init__(self, path: str) -> None:
        self.scheme, self.path = parse_table_path(path)
        self._fs, self._root = _open_file_system(self.scheme, self.path)

    def properties(self) -> dict[str, str] | None:
        """Return ``hoodie.properties``, or ``None`` where there is no table yet.

        Hudi rewrites the file in place, with a backup beside it: a part of it is no answer.

        :raises TableUnreadableError: if the storage cannot be read, or neither file is whole.
        """
        for _ in range(_WHOLE_TRIES):
            for name in ("hoodie.properties", "hoodie.properties.backup"):
                content = self._read(f".hoodie/{name}") or b""
                found = parse_table_properties(content.decode("utf-8", errors="replace"))
                if found.keys() >= _WHOLE:
                    return found
            if not self._list(".hoodie"):
                return None
            time.sleep(_WHOLE_PAUSE_S)
        raise TableUnreadableError(
            f"{self.path}/.hoodie/hoodie.properties is missing or cut off",
            remedy="wait for the writer that updates it; if there is none, restore it from its backup",
        )

    def timeline(self) -> Timeline:
        """List the active timeline; a table that does not exist yet has an empty one.

        :raises TableUnreadableError: if the storage cannot be read.
        """
        folder = self._timeline_folder()
        if folder is None:
            return Timeline()
        return Timeline.from_file_names(self._list(folder))

    def commit(self, instant: Instant) -> CommitMetadata | None:
        """Read what a completed write did; ``None`` if its file has gone (archived) meanwhile.

        :raises TableUnreadableError: if the file cannot be read or decoded.
        """
        folder = self._timeline_folder()
        content = self._read(f"{folder}/{instant.file_name}") if folder else None
        if content is None:
            return None
        try:
            return read_commit(content)
        except Exception as error:
            raise self._unreadable(f"{folder}/{instant.file_name}", error) from error

    def has_history(self) -> bool:
        """Whether instants were archived (table version 8 and later keep them beside the timeline).

        :raises TableUnreadableError: if the storage cannot be read.
        """
        history = (self.properties() or {}).get("hoodie.timeline.history.path", "history")
        folder = f"{self._timeline_folder()}/{history}"
        return any(name.endswith(".parquet") for name in self._list(folder))

    def retire_heartbeat(self, instant_time: str) -> bool:
        """Delete the heartbeat of an instant whose writer is proven dead; ``False`` if it had none.

        A missing heartbeat counts as expired at once (Hudi 1.2.0, ``HeartbeatUtils``), so nobody
        waits for the dead writer, and the next lazy clean rolls its instant back.

        :param instant_time: requested time of the instant.
        """
        existed = self._remove(f".hoodie/.heartbeat/{instant_time}")
        if self.scheme == "file":
            self._remove(f".hoodie/.heartbeat/.{instant_time}.crc")
        return existed

    def _timeline_folder(self) -> str | None:
        properties = self.properties()
        if properties is None:
            return None
        if properties.get("hoodie.timeline.layout.version", "1") == "1":
            return ".hoodie"
        return f".hoodie/{properties.get('hoodie.timeline.path', 'timeline')}"

    def _read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._fs.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._unreadable(name, error) from error
        return content

    def _list(self, folder: str) -> list[str]:
        try:
            paths = self._fs.ls(f"{self._root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._unreadable(folder, error) from error
        return [posixpath.basename(path) for path in paths]

    def _remove(self, name: str) -> bool:
        try:
            self._fs.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return False
        except Exception as error:
            raise self._unreadable(name, error) from error
        return True

    def _unreadable(self, name: str, error: Exception) -> TableUnreadableError:
        return TableUnreadableError(
            f"{self.path}/{name} cannot be read: {type(error).__name__}: {error}",
            remedy=_UNREADABLE_REMEDY,
        )


def _open_file_system(scheme: str, path: str) -> tuple[Any, str]:
    import fsspec

    url = path if scheme == "file" else _FSSPEC_SCHEME.get(scheme, scheme) + path[len(scheme) :]
    try:
        file_system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    except (ValueError, ImportError) as error:
        raise ConfigurationError(
            "table", f"{path}: {error}", remedy="install the fsspec package for this storage"
        ) from error
    return file_system, root.rstrip("/")
