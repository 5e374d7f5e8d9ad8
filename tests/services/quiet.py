"""How werkzeug serves moto to the tests."""

from __future__ import annotations

from typing import Any

from werkzeug.serving import WSGIRequestHandler


class QuietHandler(WSGIRequestHandler):
    """Keeps a client's connection open, and logs no request."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:
        """Say nothing."""
