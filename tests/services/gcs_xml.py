"""Google's XML API in front of fake-gcs-server, which takes objects by the JSON API alone."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlencode

_TIMEOUT_S = 10
_KEPT = ("etag", "x-goog-generation", "last-modified", "content-type")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    port: int  # of the JSON API

    def do_GET(self) -> None:
        self._forward("GET", self.path, {"If-None-Match": self.headers.get("If-None-Match", "")})

    def do_DELETE(self) -> None:
        bucket, name = self._named()
        self._forward("DELETE", f"/storage/v1/b/{bucket}/o/{name}", {})

    def do_PUT(self) -> None:
        """Send an upload, with the same condition on the object's generation."""
        bucket, name = self._named()
        query = {"uploadType": "media", "name": unquote(name)}
        if condition := self.headers.get("x-goog-if-generation-match"):
            query["ifGenerationMatch"] = condition
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._forward("POST", f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}", {}, body)

    def _named(self) -> tuple[str, str]:
        bucket, _, name = self.path.lstrip("/").partition("/")
        return bucket, name

    def _forward(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> None:
        asked = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)
        try:
            asked.request(method, path, body, {key: value for key, value in headers.items() if value})
            answer = asked.getresponse()
            content = answer.read()
            kept = {key: value for key in _KEPT if (value := answer.headers.get(key))}
        finally:
            asked.close()
        if method == "POST" and answer.status == http.HTTPStatus.OK:
            made = json.loads(content)
            kept, content = {"ETag": f'"{made["etag"]}"', "x-goog-generation": made["generation"]}, b""
        self.send_response(answer.status)
        for key, value in kept.items():
            self.send_header(key, value)
        if answer.status not in (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED):
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def gcs_xml(port: int) -> Iterator[str]:
    """Serve the XML API of a fake-gcs-server; return its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"port": port}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
