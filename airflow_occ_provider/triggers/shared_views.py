"""Views of a table that all guards of a process share."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary

from airflow_occ_provider.attempts.guards.table_views import TableViews
from airflow_occ_provider.hooks.hudi_table import open_table

_registry = threading.Lock()
# They live as long as a guard refers to them.
_views: WeakValueDictionary[tuple[str, str | None, float], TableViews] = WeakValueDictionary()


def shared_views(table: str, storage_conn_id: str | None, period_s: float) -> TableViews:
    """Return the views of a table, of which each is shared for some seconds.

    :param storage_conn_id: Airflow connection of its storage.
    :raises ConfigurationError: if no installed provider has a file system for the storage.
    """
    key = (table, storage_conn_id, period_s)
    with _registry:
        views = _views.get(key)
    if views is not None:
        return views
    opened = TableViews(open_table(table, storage_conn_id), period_s)  # may ask for the connection
    with _registry:
        return _views.setdefault(key, opened)
