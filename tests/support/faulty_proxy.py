"""A reverse proxy on loopback that counts requests and lets a share of them fail, by a seed."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

_PIECE = 64 * 1024
_TIMEOUT_S = 120.0
# Of one connection, or answered by this proxy itself.
_OWN_HEADERS = {"connection", "keep-alive", "expect", "transfer-encoding", "proxy-connection"}
_NO_BODY = {204, 304}
_ERRORS = {
    "error 500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "error 503": (503, "SlowDown", "Please reduce your request rate."),
}


class Fault(StrEnum):
    """What happens to a request instead of its answer."""

    ERROR_500 = "error 500"
    ERROR_503 = "error 503"
    SLOW = "slow"
    CUT_BEFORE = "cut before it was carried out"
    CUT_AFTER = "cut after it was carried out"
    CUT_ANSWER = "cut in the middle of its answer"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as a client sent it."""

    method: str
    path: str
    query: str
    agent: str = ""

    @property
    def is_listing(self) -> bool:
        """Whether it lists a bucket."""
        return "list-type=2" in self.query

    @property
    def is_page(self) -> bool:
        """Whether it asks for a further page of a listing."""
        return "continuation-token=" in self.query

    def __str__(self) -> str:
        return f"{self.method} {self.path}{'?' if self.query else ''}{self.query}"


class FaultyProxy:
    """A proxy in front of an HTTP server during a ``with`` block.

    :param target: URL of the server.
    :param percent: share of the requests that fail; it may be changed at any time.
    :param slow_s: the longest delay of a slow request, in seconds.
    :param kinds: the faults that are drawn.
    """

    def __init__(
        self,
        target: str,
        *,
        seed: int = 7,
        percent: float = 0.0,
        slow_s: float = 3.0,
        kinds: tuple[Fault, ...] = tuple(Fault),
    ) -> None:
        self.percent, self.slow_s, self.kinds = percent, slow_s, kinds
        self.faults: Counter[Fault] = Counter()
        self.seen: list[Request] = []
        self._target = urlsplit(target)
        self._planned: deque[tuple[Fault, Callable[[Request], bool]]] = deque()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self

    @property
    def url(self) -> str:
        """Its own address, in place of the server's."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        serve = self._server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.05,), daemon=True, name="faulty-proxy")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def plan(
        self, *faults: Fault, at: Callable[[Request], bool] = lambda _: True, times: int = 1
    ) -> None:
        """Let the next requests fail, one after the other, before any is drawn.

        :param at: which requests.
        :param times: how often the whole row of faults is repeated.
        """
        with self._lock:
            self._planned.extend((fault, at) for _ in range(times) for fault in faults)

    def forget_plan(self) -> None:
        """Let no planned fault happen any more."""
        with self._lock:
            self._planned.clear()

    def counted(self) -> list[Request]:
        """Return the requests since the last call."""
        with self._lock:
            seen, self.seen = self.seen, []
        return seen

    def draw(self, request: Request) -> tuple[Fault | None, float]:
        """Count a request; return its fault, if any, and the seconds of its delay."""
        with self._lock:
            self.seen.append(request)
            fault = self._planned_for(request)
            if fault is None and self._random.random() * 100 < self.percent:
                fault = self._random.choice(self.kinds)
            if fault:
                self.faults[fault] += 1
            delay_s = self._random.uniform(0.1, 1) * self.slow_s if fault is Fault.SLOW else 0.0
        return fault, delay_s

    def _planned_for(self, request: Request) -> Fault | None:
        for one in self._planned:
            if one[1](request):
                self._planned.remove(one)
                return one[0]
        return None

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection to the server."""
        return http.client.HTTPConnection(
            self._target.hostname or "", self._target.port, timeout=_TIMEOUT_S
        )


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256
    proxy: FaultyProxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that went away: they are what this proxy is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _TIMEOUT_S
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        request = Request(self.command, path, query, self.headers.get("User-Agent", ""))
        fault, delay_s = self.server.proxy.draw(request)
        if fault is Fault.CUT_BEFORE:
            self._cut()
            return
        if fault in _ERRORS:
            for _ in self._body():
                pass
            self._answer_error(*_ERRORS[fault])
            return
        time.sleep(delay_s)
        with contextlib.closing(self.server.proxy.connect()) as upstream:
            self._forward(upstream)
            answer = upstream.getresponse()
            if fault is Fault.CUT_AFTER:
                answer.read()
                self._cut()
            else:
                self._hand_back(answer, cut=fault is Fault.CUT_ANSWER)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names of the base class

    def _body(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self._exactly(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self._exactly(min(_PIECE, left))
            left -= len(piece)
            yield piece

    def _exactly(self, size: int) -> bytes:
        piece = self.rfile.read(size)
        if len(piece) < size:
            raise ConnectionError("the client went away")
        return piece

    def _forward(self, upstream: http.client.HTTPConnection) -> None:
        """Send the request on, with the client's own Host, which its signature covers."""
        upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _OWN_HEADERS:
                upstream.putheader(name, value)
        chunked = "Transfer-Encoding" in self.headers
        if chunked:
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()
        for piece in self._body():
            upstream.send(_chunk(piece) if chunked else piece)
        if chunked:
            upstream.send(b"0\r\n\r\n")

    def _hand_back(self, answer: http.client.HTTPResponse, *, cut: bool) -> None:
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN_HEADERS:
                self.send_header(name, value)
        has_body = self.command != "HEAD" and answer.status not in _NO_BODY
        chunked = has_body and answer.getheader("Content-Length") is None
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while has_body and (piece := answer.read(_PIECE)):
            if cut:
                self.wfile.write(
                    _chunk(piece)[: len(piece) // 2] if chunked else piece[: len(piece) // 2]
                )
                break
            self.wfile.write(_chunk(piece) if chunked else piece)
        if cut:
            self._cut()
        elif chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _answer_error(self, status: int, code: str, message: str) -> None:
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{code}</Code><Message>{message}</Message>"
            "<RequestId>faulty-proxy</RequestId></Error>"
        ).encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(0 if self.command == "HEAD" else len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)
