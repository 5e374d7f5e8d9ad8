"""A table's base path: its canonical form and its fsspec file system."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import Any

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.partition_path import NOT_BELOW, is_below

_URL = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?")
# Hadoop prints a path in this form if its own configuration sets the authority.
_NO_AUTHORITY = re.compile(r"(?P<scheme>file|hdfs|viewfs):(?P<path>/(?!/).*)", re.IGNORECASE)
# Other names of file systems, of Hadoop or of fsspec, by the name that a table has here.
_NAMES = {
    "s3": ("s3a", "s3n"),
    "hdfs": ("viewfs",),
    "gs": ("gcs",),
    "abfs": ("abfss", "wasb", "wasbs", "az"),
}
_FSSPEC_SCHEME = {name: fsspec for fsspec, names in _NAMES.items() for name in names}
# One account of Azure has a host for each of its two APIs, which name the same containers.
_BLOB_HOST = re.compile(r"(@[^.]+)\.blob\.")


def parse_table_path(table: object) -> tuple[str, str]:
    """Return the scheme and the canonical form of a table's base path.

    As in Hadoop (``Path.normalizePath``), repeated and trailing slashes and dot segments are ignored;
    an object store itself does not ignore them.

    :raises ConfigurationError: if it is neither an absolute path nor a URL, such as a table's name.
    """
    text = table.rstrip("/") if isinstance(table, str) else ""
    match = _URL.fullmatch(text) or _NO_AUTHORITY.fullmatch(text)
    if match:
        scheme, authority = match["scheme"].lower(), match.groupdict().get("authority", "")
        path = _normal(match["path"]) if match["path"] else ""
        if (authority or path) and not (scheme == "file" and authority):
            return scheme, f"{scheme}://{authority}{path}"
    if text.startswith("/"):
        return "file", _normal(text)
    raise ConfigurationError(
        "table",
        f"{table!r} is not a path",
        remedy="give the table's base path, such as s3a://lake/trips or /lake/trips, not its name",
    )


def _normal(path: str) -> str:
    """Return a path without repeated slashes and dot segments; root is empty."""
    return posixpath.normpath(f"/{path.lstrip('/')}").rstrip("/")


def fsspec_scheme(scheme: str) -> str:
    """Return fsspec's name of a file system that Hadoop calls ``scheme``."""
    return _FSSPEC_SCHEME.get(scheme, scheme)


def fsspec_url(scheme: str, path: str) -> str:
    """Return the canonical path with fsspec's scheme, in Azure with the DFS host."""
    if scheme == "file":
        return path
    name, (authority, slash, rest) = fsspec_scheme(scheme), path[len(scheme) + 3 :].partition("/")
    if name == "abfs" and "@" in authority:
        authority = _BLOB_HOST.sub(r"\1.dfs.", authority.lower())
    return f"{name}://{authority}{slash}{rest}"


def canonical_table(table: object) -> str:
    """Return the canonical name of a table, the same for all spellings of its path.

    :raises ConfigurationError: if it is not a path.
    """
    scheme, path = parse_table_path(table)
    if scheme == "file":
        return path.removeprefix("file://")
    return fsspec_url(scheme, path)


def named(field: str, given: str | Sequence[object]) -> tuple[str, ...]:
    """Return the names in an argument, one or many.

    :raises ConfigurationError: if there is no name, or one was rendered empty.
    """
    names = (given,) if isinstance(given, str) else tuple(map(str, given))
    if not names or not all(name.strip(" /") for name in names):
        raise ConfigurationError(
            field, f"{given!r} is empty", remedy=f"name the {field}, or omit the argument"
        )
    return names


def named_partitions(scope: str | Sequence[object] | None) -> tuple[str, ...] | None:
    """Return the partitions of a declared scope; ``None`` if there is no scope.

    :raises ConfigurationError: if a path was rendered empty, or is not a path below a table.
    """
    paths = None if scope is None else named("scope", scope)
    for path in paths or ():
        if not is_below(path):
            raise ConfigurationError(
                "scope", f"{path!r} {NOT_BELOW}", remedy="name partitions by their paths in the table"
            )
    return paths


def open_file_system(scheme: str, path: str) -> Any:
    """Return the fsspec file system of a path, with this process's credentials.

    :raises ConfigurationError: if no fsspec file system is installed for the scheme, or it finds no
        credentials.
    """
    import fsspec

    if fsspec_scheme(scheme) == "hdfs":
        return _open_hdfs(scheme, path)
    try:
        return over_http(fsspec.core.url_to_fs(fsspec_url(scheme, path), use_listings_cache=False)[0])
    except (ValueError, ImportError) as error:
        remedy = "install the fsspec package for this storage"
        if isinstance(error, ValueError) and fsspec_scheme(scheme) in fsspec.available_protocols():
            remedy = "give the worker the credentials of this storage, or name a storage_conn_id"
        raise ConfigurationError("table", f"{path}: {error}", remedy=remedy) from error


def _open_hdfs(scheme: str, path: str) -> Any:
    """Return the client of an HDFS: hdfs-native's if it is installed, or else that of libhdfs.

    Neither caches listings, and hdfs-native accepts no option that is not a string.
    """
    import fsspec

    try:
        return fsspec.core.url_to_fs(fsspec_url(scheme, path))[0]
    except (ImportError, OSError, RuntimeError) as error:
        said = str(error).partition("\n")[0]  # then follows each place where a libhdfs was looked for
        raise ConfigurationError(
            "table",
            f"{path}: {said}",
            remedy="install airflow-occ-provider[hdfs], and set HADOOP_CONF_DIR for the worker or write "
            "the NameNode's address into the path",
        ) from error


def over_http(file_system: Any) -> Any:
    """Return a file system that reads by HTTP alone, if it is one of gcsfs.

    By default gcsfs asks by gRPC, before each read, what kind of bucket it is. If the network lets only
    HTTP through, each read waits for a minute. The files of a timeline need no other protocol.
    """
    plain = next((kind for kind in type(file_system).__mro__ if kind.__module__ == "gcsfs.core"), None)
    if plain is None or plain is type(file_system):
        return file_system
    return plain(*file_system.storage_args, **file_system.storage_options)
