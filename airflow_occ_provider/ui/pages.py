"""Renders the pages as HTML. Jinja escapes every value."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from airflow_occ_provider.attempts.identity import TaskKey
from airflow_occ_provider.spelling import spell_owner, spell_span, spell_time
from airflow_occ_provider.ui import drawing, links, rows, words
from airflow_occ_provider.ui.time_axis import time_axis
from airflow_occ_provider.ui.view import RANGES, AttemptsPage, TablePage, TablesPage

_FILTERS = {
    function.__name__: function
    for function in (words.margin, words.count, words.evidence, spell_span, spell_time)
}


def tables_page(page: TablesPage) -> str:
    """Return the page of all tables."""
    return _render("tables.html", page)


def table_page(page: TablePage) -> str:
    """Return the page of one table."""
    return _render(
        "table.html",
        page,
        axis=_axis(page),
        drawing=drawing,
        ranges=RANGES,
        most=rows.MOST_ROWS,
        queue=rows.queue_rows(page),
        writers=rows.writer_rows(page),
        services=rows.service_rows(page),
    )


def attempts_page(page: AttemptsPage) -> str:
    """Return the page of a task run's attempts."""
    path = TaskKey(page.dag_id, page.run_id, page.task_id, page.map_index).path
    return _render(
        "attempts.html", page, name=spell_owner(path), href=links.task_link(page.viewer.home, path)
    )


def _axis(page: TablePage) -> drawing.TimeAxis | None:
    state = page.table.state
    if state is None:
        return None
    return time_axis(state.bars, state.edges, state.at_ms, RANGES[page.span], page.viewer)


def _render(template: str, page: object, **values: Any) -> str:
    return _environment().get_template(template).render(page=page, **values)


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
