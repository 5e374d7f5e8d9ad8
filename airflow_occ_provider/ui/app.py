"""The app that Airflow's API server mounts: pages that are only read."""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from typing import Annotated

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from airflow_occ_provider.attempts.identity import TaskKey
from airflow_occ_provider.leases.rules import Owner
from airflow_occ_provider.task.database import task_record, task_states
from airflow_occ_provider.ui import answers, pages
from airflow_occ_provider.ui.access import ATTEMPTS, SIGNED_IN, TABLES, viewer
from airflow_occ_provider.ui.catalog import Catalog
from airflow_occ_provider.ui.compose import attempts_of, known_table
from airflow_occ_provider.ui.known_tables import TableSource
from airflow_occ_provider.ui.rows import MOST_ROWS
from airflow_occ_provider.ui.table_readers import Readers
from airflow_occ_provider.ui.table_reads import TableReading, TableReads, page_end
from airflow_occ_provider.ui.view import DEFAULT_RANGE, RANGES, AttemptsPage, TablePage, TablesPage

_UNMAPPED = ("-1", "{MAP_INDEX}")  # Airflow fills the token in for mapped tasks alone
_MAPPED = re.compile(r"[0-9]{1,9}")
_router = APIRouter()
Range = Annotated[str, Query(alias="range", pattern=f"^({'|'.join(RANGES)})$")]


async def _task(dag_id: str, run_id: str, task_id: str, map_index: str) -> TaskKey:
    if map_index not in _UNMAPPED and not _MAPPED.fullmatch(map_index):
        raise HTTPException(404)
    return TaskKey(dag_id, run_id, task_id, -1 if map_index in _UNMAPPED else int(map_index))


def make_app(readers: Readers | None = None) -> FastAPI:
    """Return the app; it opens no connection before the first request.

    :param readers: read the tables; in this process by default.
    """
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    app.state.reads = TableReads(readers)
    app.state.catalog = Catalog(app.state.reads)
    app.include_router(_router)
    answers.add_error_pages(app)
    return app


@_router.get("/", dependencies=TABLES)
async def tables(request: Request) -> Response:
    """Answer with the page of all tables."""
    end_s = page_end()
    _reads(request).start(await _catalog(request).named(end_s))
    sources = await _catalog(request).tables(end_s)
    readings = await asyncio.gather(
        *(_reads(request).table(source, end_s, with_verdicts=False) for source in sources.values())
    )

    def render() -> str:
        shown = sorted(map(known_table, readings), key=lambda table: table.path)
        return pages.tables_page(TablesPage(tuple(shown), _now_ms()))

    return await answers.rendered(render)


@_router.get("/t/{key}", dependencies=TABLES)
async def table_without_slash(request: Request, key: str, span: Range = DEFAULT_RANGE) -> Response:
    """Answer with the location from which the relative links of the page lead on."""
    source = await _source(request, key, page_end())
    return answers.moved(f"{source.key}/?range={span}")


@_router.get("/t/{key}/", dependencies=TABLES)
async def table(request: Request, key: str, user: GetUserDep, span: Range = DEFAULT_RANGE) -> Response:
    """Answer with the page of a table."""
    end_s = page_end()
    source = await _source(request, key, end_s)
    reading = await _reads(request).table(source, end_s, with_findings=True)
    published = await _catalog(request).published(end_s)
    seen_by = await viewer(user, "../../", await _catalog(request).site(end_s))
    states = await run_in_threadpool(_task_states, reading)

    def render() -> str:
        shown = known_table(reading, published.signed(source.path))
        return pages.table_page(TablePage(shown, _now_ms(), seen_by, span, states))

    return await answers.rendered(render)


@_router.get("/attempts/{dag_id}/{run_id}/{task_id}/{map_index}", dependencies=ATTEMPTS)
async def attempts(
    request: Request, user: GetUserDep, task: Annotated[TaskKey, Depends(_task)]
) -> Response:
    """Answer with the page of a task run's attempts."""
    try:
        record = await run_in_threadpool(task_record, *task)
    except ValueError as error:
        raise HTTPException(404) from error
    end_s = page_end()
    paths = {attempt.table for attempt in record.attempts} if record else set()
    named = await _catalog(request).of_paths(paths, end_s)
    readings = await asyncio.gather(*(_reads(request).table(source, end_s) for source in named.values()))
    problems = [
        reading.storage.problem for reading in readings if reading.storage and reading.storage.problem
    ]
    page = AttemptsPage(
        *task,
        record,
        attempts_of(record, dict(zip(named, readings, strict=True))) if record else (),
        _now_ms(),
        await viewer(user, "../../../../", await _catalog(request).site(end_s)),
        " ".join(dict.fromkeys(problems)),
        {path: source.key for path, source in named.items()},
    )
    return await answers.rendered(partial(pages.attempts_page, page))


@_router.get("/static/{name}", dependencies=SIGNED_IN)
async def static(name: str) -> Response:
    """Answer with a file of the pages."""
    return answers.static(name)


async def _source(request: Request, key: str, until_s: float) -> TableSource:
    source = await _catalog(request).find(key, until_s)
    if source is None:
        raise HTTPException(404)
    return source


def _task_states(reading: TableReading) -> dict[Owner, str]:
    """Return the states of the tasks whose requests the page shows."""
    queue = reading.state.queue if reading.state else None
    return task_states(line.queued.request.owner for line in (queue or ())[:MOST_ROWS])


def _catalog(request: Request) -> Catalog:
    catalog: Catalog = request.app.state.catalog
    return catalog


def _reads(request: Request) -> TableReads:
    reads: TableReads = request.app.state.reads
    return reads


def _now_ms() -> int:
    return round(time.time() * 1000)
