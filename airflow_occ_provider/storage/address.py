"""A table's base path: its canonical form and its fsspec file system."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from airflow_occ_provider.errors import ConfigurationError, install_extra
from airflow_occ_provider.hudi.format.table_config import NOT_BELOW, is_below

_URL = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>/.*)?")
# Hadoop prints a path in this form if its own configuration sets the authority.
_NO_AUTHORITY = re.compile(r"(?P<scheme>file|hdfs|viewfs|dbfs|maprfs):(?P<path>/(?!/).*)", re.IGNORECASE)
# Other names of file systems, of Hadoop or of fsspec, by the name that a table has here.
_NAMES = {
    "s3": ("s3a", "s3n"),
    "hdfs": ("viewfs",),
    "gs": ("gcs",),
    "abfs": ("abfss", "wasb", "wasbs", "az"),
}
_FSSPEC_SCHEME = {name: fsspec for fsspec, names in _NAMES.items() for name in names}
# Names of buckets, which may differ in case; every other authority is a host's name, which does not.
_BUCKETS = frozenset({"s3", "gs", "oss", "cosn", "cos", "obs"})
_DEFAULT_PORTS = {
    "hdfs": ("8020",),
    "webhdfs": ("9870",),
    "swebhdfs": ("9871",),
    "ofs": ("9862",),
    "alluxio": ("19998",),
    "abfs": ("443", "80"),
    "s3": ("443", "80"),
    "gs": ("443",),
}
# A path of these without an authority is one of the file system that Hadoop's configuration names.
_OF_DEFAULT = ("hdfs", "viewfs")
_DEFAULT_FS = ("fs.defaultFS", "fs.default.name")
# One account of Azure has a host for each of its two APIs, which name the same containers.
_BLOB_HOST = re.compile(r"(@[^.]+)\.blob\.")
_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "az": "azure", "hdfs": "hdfs"}


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
        if scheme == "file" and authority.lower() == "localhost":
            authority = ""
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
    name = fsspec_scheme(scheme)
    authority, slash, rest = path[len(scheme) + 3 :].partition("/")
    if name == "abfs" and "@" in authority:
        authority = _BLOB_HOST.sub(r"\1.dfs.", authority.lower())
    return f"{name}://{authority}{slash}{rest}"


def canonical_table(table: object) -> str:
    """Return the canonical name of a table, the same for all spellings of its path.

    The queue, the records, the assets and the commands know a table by this name. As in Hadoop, the
    case of a host and a default port do not count, and ``hdfs:///t`` is in the file system that
    ``fs.defaultFS`` names. A path of ``viewfs`` keeps its own name: only the clients' mount table knows
    what it stands for.

    :raises ConfigurationError: if it is not a path, or names no NameNode, and nor does Hadoop's
        configuration.
    """
    name, authority, path = _place(table)
    if name in _OF_DEFAULT and not authority:
        authority = _default_authority(name)
        if not authority:
            raise ConfigurationError(
                "table",
                f"{table!r} names no NameNode, and HADOOP_CONF_DIR has no core-site.xml with a "
                f"fs.defaultFS of {name}",
                remedy=f"write the whole path, such as {name}://namenode{path}, or set HADOOP_CONF_DIR "
                "for all of Airflow's processes",
            )
    return f"{name}://{authority}{path}" if name else path


def is_one_table(table: str, other: str) -> bool:
    """Whether two paths are spellings of one table.

    :raises ConfigurationError: as ``canonical_table`` does.
    """
    return table == other or canonical_table(table) == canonical_table(other)


def may_be_one_table(table: str, other: str) -> bool:
    """Whether two paths may name one table, as far as they tell.

    A path without an authority, as Hadoop prints some, may be of any; one of ``viewfs`` may stand for
    any path of HDFS.

    :raises ConfigurationError: if one is not a path.
    """
    places = _place(table), _place(other)
    (name, authority, path), (other_name, other_authority, other_path) = places
    if name != other_name:
        return {name, other_name} == {"hdfs", "viewfs"}
    return path == other_path and (authority == other_authority or not (authority and other_authority))


def _place(table: object) -> tuple[str, str, str]:
    """Return the canonical scheme, authority and path of a table; only the path of a local one."""
    scheme, path = parse_table_path(table)
    if scheme == "file":
        return "", "", path.removeprefix("file://")
    name = scheme if scheme == "viewfs" else fsspec_scheme(scheme)
    authority, slash, rest = fsspec_url(scheme, path).partition("://")[2].partition("/")
    return name, _canonical_authority(name, authority), f"{slash}{rest}"


def _canonical_authority(name: str, authority: str) -> str:
    container, at, host = authority.rpartition("@")
    if name not in _BUCKETS:
        host = host.lower()
    for port in _DEFAULT_PORTS.get(name, ()):
        host = host.removesuffix(f":{port}")
    # Only in Azure a part of the place precedes the host; elsewhere it is a key, or a user.
    return f"{container}{at}{host}" if name == "abfs" else host


def _default_authority(name: str) -> str:
    """Return the authority of Hadoop's default file system, if that is of this scheme."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    if not folder:
        return ""
    try:
        root = ET.parse(Path(folder, "core-site.xml")).getroot()  # noqa: S314 - the site's file
    except (OSError, ET.ParseError):
        return ""
    values = {
        element.findtext("name", "").strip(): element.findtext("value", "")
        for element in root.iter("property")
    }
    url = urlsplit(next((values[key].strip() for key in _DEFAULT_FS if key in values), ""))
    return _canonical_authority(name, url.netloc) if url.scheme.lower() == name else ""


def named(field: str, argument: str | Sequence[object]) -> tuple[str, ...]:
    """Return the names in an argument, one or many.

    :raises ConfigurationError: if there is no name, or one was rendered empty.
    """
    names = (argument,) if isinstance(argument, str) else tuple(map(str, argument))
    if not names or not all(name.strip(" /") for name in names):
        raise ConfigurationError(
            field, f"{argument!r} is empty", remedy=f"name the {field}, or omit the argument"
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
        extra = _EXTRAS.get(fsspec_scheme(scheme))
        remedy = install_extra(extra) if extra else "install the fsspec package for this storage"
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
            remedy=f"{install_extra(_EXTRAS['hdfs'])}, and set HADOOP_CONF_DIR for the worker or write "
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
