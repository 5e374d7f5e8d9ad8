"""Renders the pages as HTML. Jinja escapes every value."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_occ_provider.attempts.identity import TaskKey
from airflow_occ_provider.spelling import spell_owner, spell_span, spell_time
from airflow_occ_provider.ui import drawing, links, rows, words
from airflow_occ_provider.ui.time_axis import time_axis
from airflow_occ_provider.ui.view import RANGES, AttemptsView, TablesView, TableView

_FILTERS = {
    function.__name__: function
    for function in (words.margin, words.count, words.evidence, spell_span, spell_time)
}


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
    path = TaskKey(view.dag_id, view.run_id, view.task_id, view.map_index).path
    return _render(
        "attempts.html", view, name=spell_owner(path), href=links.task_link(view.viewer.home, path)
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
    environment.filters.update(_FILTERS)
    environment.globals["table_link"] = links.table_link
    return environment
