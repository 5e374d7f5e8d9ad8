"""The asset of a table, the URIs of the scheme ``hudi``, and writers' events."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from airflow.sdk import Asset, AssetAlias

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.table_config import value_of
from airflow_occ_provider.storage.address import canonical_table

SCHEME = "hudi"
_BY_PARTITION = "by_partition"
_LONGEST_KEY = 250  # characters, of Airflow's column
_HUDI = re.compile(rf"{SCHEME}:(?://(?P<scheme>[^/]*))?(?P<path>.*)", re.IGNORECASE)
# Airflow sorts what follows the one, and drops what follows the other.
_QUOTED = str.maketrans({"?": "%3F", "#": "%23"})


def hudi_asset(table: str, *, by_partition: bool = False, **kwargs: Any) -> Asset:
    """Return the asset of a table: one for all spellings of its base path.

    Its name and its URI are the table's own URL, such as ``s3://lake/trips``.

    :param table: base path of the table, an absolute path or a URL, also one of the scheme ``hudi``.
    :param by_partition: whether a task with this outlet emits one event for each partition that it
        wrote, with the partition's value as its key. Airflow starts only DAGs with a partitioned
        schedule for such an event. A task that wrote no partition emits one event without a key.
    :param kwargs: further arguments of ``Asset``, such as ``watchers``.
    :raises ConfigurationError: if it is not a path.
    """
    uri = _asset_uri(table)
    if by_partition:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), _BY_PARTITION: True}
    return Asset(name=uri, uri=uri, **kwargs)


def normalized(uri: SplitResult) -> SplitResult:
    """Return the table's own URL in an asset URI of the scheme ``hudi``.

    Airflow calls it for each such asset, also in the triggerer, which an exception would end.

    :param uri: unchanged if it names no table, such as ``hudi://``.
    """
    if uri.scheme != SCHEME:
        return uri
    try:
        return urlsplit(_asset_uri(urlunsplit(uri)))
    except (ConfigurationError, ValueError):
        return uri


def _asset_uri(table: str) -> str:
    url = _own_url(table)
    path = canonical_table(url)
    if "://" in url and urlsplit(url).password:
        raise ConfigurationError(
            "table", "the path has a password in it", remedy="name a storage connection instead"
        )
    return (path if "://" in path else f"file://{path}").translate(_QUOTED)


def _own_url(table: str) -> str:
    """Return the path in a URI of the scheme ``hudi``; another one is returned as it is.

    The table's own scheme is the authority, with or without a colon: ``hudi://s3a/lake/trips``,
    ``hudi://s3a://lake/trips``. Without one it is a local path: ``hudi:///lake/trips``.
    """
    while match := _HUDI.fullmatch(table):
        scheme, path = match["scheme"] or "file", match["path"]
        if scheme == "file":
            table = path
        else:
            table = f"{scheme}{path}" if scheme.endswith(":") else f"{scheme}:/{path}"
    return table


_log = logging.getLogger(__name__)


def emit_asset_events(
    context: Any, outlets: Iterable[object], table: str, result: Mapping[str, Any]
) -> None:
    """Give every outlet's event the result of the task.

    An alias means the table's own asset, if something was written; it has no partitions.

    :param context: of the task.
    :param table: base path of the table.
    :param result: of the task, with the instant of its commit.
    """
    for outlet in outlets:
        if isinstance(outlet, Asset):
            event = context["outlet_events"][outlet]
            event.extra = dict(result)
            if outlet.extra.get(_BY_PARTITION):
                event.add_partitions(_keys(result))
        elif isinstance(outlet, AssetAlias) and result["instant"]:
            try:
                context["outlet_events"][outlet].add(hudi_asset(table), extra=dict(result))
            except ValueError as error:  # Airflow refuses the URI; the commit stays
                _log.warning("The alias %s gets no event of %s: %s", outlet.name, table, error)


def _keys(result: Mapping[str, Any]) -> list[str]:
    """Return the keys of the partitions that a task wrote; an unpartitioned table has none."""
    keys = [key for partition in result["partitions"] if (key := value_of(partition)).strip()]
    too_long = [key for key in keys if len(key) > _LONGEST_KEY]
    left_out = result.get("partitions_left_out", 0) + len(too_long)
    if left_out:
        _log.warning("%d partitions that were written get no event: too many, or too long.", left_out)
    return [key for key in keys if key not in too_long]
