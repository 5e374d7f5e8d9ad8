"""Renders the pages as HTML. Jinja escapes every value."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_occ_provider.ui import drawing, links, rows, words
from airflow_occ_provider.ui.time_axis import time_axis
from airflow_occ_provider.ui.view import RANGES, AttemptsView, TablesView, TableView

_FILTERS = ("span", "moment", "margin", "count", "evidence")


def tables_page(view: TablesView) -> str:
    """Return the page of all tables."""
    return _render("tables.html", view)


def table_page(view: TableView) -> str:
    """Return the page of one table."""
    return _render(
        "table.html",
        view,
        axis=_axis(view),
        drawing=drawing,
        ranges=RANGES,
        most=rows.MOST_ROWS,
        queue=rows.queue_rows(view),
        writers=rows.writer_rows(view),
        services=rows.service_rows(view),
    )


def attempts_page(view: AttemptsView) -> str:
    """Return the page of a task run's attempts."""
    mapped = () if view.map_index < 0 else (str(view.map_index),)
    path = (view.dag_id, view.run_id, view.task_id, *mapped)
    return _render(
        "attempts.html", view, name=" / ".join(path), href=links.task_link(view.viewer.home, path)
    )


def _axis(view: TableView) -> drawing.TimeAxis | None:
    state = view.table.state
    if state is None:
        return None
    return time_axis(state.bars, state.edges, state.at_ms, RANGES[view.span], view.viewer)


def _render(template: str, view: object, **values: Any) -> str:
    return _environment().get_template(template).render(view=view, **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("airflow_occ_provider.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.visible,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({name: getattr(words, name) for name in _FILTERS})
    environment.globals["table_link"] = links.table_link
    return environment
