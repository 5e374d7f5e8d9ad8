"""Pages of a table, as the API server renders them."""

from __future__ import annotations

from airflow_occ_provider.reading.overview import queue_lines
from airflow_occ_provider.reading.table_state import TableState
from airflow_occ_provider.ui.links import Viewer
from airflow_occ_provider.ui.pages import table_page
from airflow_occ_provider.ui.view import (
    KnownTable,
    Reach,
    TablePage,
)
from tests.unit.rendered import as_html, as_xml

NOW = 1_795_268_400_000  # 2026-11-21 13:40 UTC
HOME = "../../"


def known(state=None, **values):
    if state:
        values = {"storage": Reach(True, state.at_ms), **values}
    return KnownTable("trips", state.table if state else "s3://lake/trips", state, **values)


def page(table, span="1h", *, states=None, **viewer):
    now_ms = table.state.at_ms + 3000 if table.state else NOW
    made = table_page(TablePage(table, now_ms, Viewer(HOME, **viewer), span, states or {}))
    as_xml(made)
    return as_html(made)


def with_queue(*queue):
    return known(TableState("/t", NOW, queue=tuple(queue_lines(queue, "/t"))))
