"""The events of the assets that a writing task produces."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from airflow.sdk import Asset, AssetAlias

from airflow_occ_provider.assets.table import hudi_asset

_log = logging.getLogger(__name__)


def emit_asset_events(
    context: Any, outlets: Iterable[object], table: str, result: Mapping[str, Any]
) -> None:
    """Give every outlet's event the result of the task.

    An alias means the table's own asset, if something was written.

    :param context: of the task.
    :param table: base path of the table.
    :param result: of the task, with the instant of its commit.
    """
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra = dict(result)
        elif isinstance(outlet, AssetAlias) and result["instant"]:
            try:
                context["outlet_events"][outlet].add(hudi_asset(table), extra=dict(result))
            except ValueError as error:  # Airflow refuses the URI; the commit stays
                _log.warning("The alias %s gets no event of %s: %s", outlet.name, table, error)
