"""The answers of the pages: their headers, and the pages of errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from html import escape
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; "
        "form-action 'none'",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        "Referrer-Policy": "same-origin",
    }
)
STATIC = MappingProxyType({"page.css": "text/css", "page.js": "text/javascript"})
_ONE = ThreadPoolExecutor(1, "hudi-ui-page")  # starts its thread on demand, after a fork
_TEXTS = {
    401: "Sign in to Airflow, then open the page again.",
    403: "You have no permission to read this page.",
    404: "There is no such page, or the table is not known here.",
    405: "This page can only be read.",
}
_ERROR = '<!doctype html><html lang="en"><title>{title}</title><h1>{title}</h1><p>{text}</p></html>'
_INTERNAL = "The API server's log says more."


def page(html: str, status: int = 200) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(html, status, headers=HEADERS)


async def rendered(make: Callable[[], str]) -> HTMLResponse:
    """Return a page that a thread makes.

    One is made at a time: many at once would keep Airflow's own requests waiting.
    """
    return page(await asyncio.get_running_loop().run_in_executor(_ONE, make))


def moved(location: str) -> Response:
    """Return a redirection to a relative location."""
    return Response(status_code=307, headers={**HEADERS, "Location": location})


def static(name: str) -> Response:
    """Return one of the two static files.

    :raises HTTPException: if it is another one.
    """
    if name not in STATIC:
        raise HTTPException(404)
    return Response(_content(name), headers=HEADERS, media_type=STATIC[name])


def add_error_pages(app: FastAPI) -> None:
    """Have an app answer errors with pages that show nothing of its inside."""

    async def refused(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 400
        answer = _error_page(status)
        if isinstance(error, HTTPException) and error.headers:
            answer.headers.update({"Allow": "GET"} if status == 405 else error.headers)
        return answer

    async def failed(_: Request, __: Exception) -> Response:
        return _error_page(500)  # Starlette raises the error again, for the log

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, refused)
    app.add_exception_handler(Exception, failed)


def _error_page(status: int) -> HTMLResponse:
    title = f"{status} {HTTPStatus(status).phrase}"
    text = _TEXTS.get(status, _INTERNAL if status >= 500 else "The request is not valid.")
    return page(_ERROR.format(title=escape(title), text=escape(text)), status)


@cache
def _content(name: str) -> bytes:
    return (Path(__file__).parent / "static" / name).read_bytes()
