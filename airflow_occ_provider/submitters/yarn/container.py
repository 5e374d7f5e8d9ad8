"""A client of the NodeManager that runs a driver's container."""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

_TIMEOUT_S = 10.0
_EXITED = re.compile(r"DONE|EXITED_\w+|CONTAINER_CLEANEDUP_AFTER_KILL|CONTAINER_RESOURCES_CLEANINGUP")
_HEAD_LINES = 50
_TAIL = 8 * 1024
_LINES = 20


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: a server may name any host.

    A standby ResourceManager redirects, too; urllib would not repeat a PUT.
    """

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Make the redirection an error."""
        return


@dataclass(frozen=True, slots=True)
class Container:
    """A container and where it runs.

    :param manager: web address of its NodeManager.
    :param id: such as ``container_1795412430323_0001_01_000001``.
    :param node: host and port by which YARN names the node.
    """

    manager: str
    id: str
    node: str

    @classmethod
    def of(cls, logs: str, node: str) -> Container | None:
        """Return the container with a page of logs, as the ResourceManager names it.

        :param logs: ``http://host:port/node/containerlogs/CONTAINER/USER``.
        :param node: host and port of the node.
        """
        parts = urlsplit(logs)
        found = re.search(r"/containerlogs/(container_\w+)", parts.path)
        return cls(f"{parts.scheme}://{parts.netloc}", found[1], node) if found else None

    def lives(self, since_ms: int) -> bool | None:
        """Return whether its processes may run; ``None`` if the node does not prove it.

        :param since_ms: before its start. A NodeManager that started later may have lost it.
        """
        try:
            with closing(self._open(f"/containers/{quote(self.id)}")) as answer:
                state = json.load(answer)["container"]["state"]
            return not _EXITED.fullmatch(state)
        except urllib.error.HTTPError as error:
            with error:
                unknown = error.code == http.HTTPStatus.NOT_FOUND and b"NotFound" in error.read()
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return None
        return False if unknown and self._has_run_since(since_ms) else None

    def _has_run_since(self, since_ms: int) -> bool:
        try:
            with closing(self._open("/info")) as answer:
                return bool(0 < json.load(answer)["nodeInfo"]["nmStartupTime"] <= since_ms)
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            return False

    def last_lines(self) -> list[str]:
        """Return the last lines of its log, if the node serves it: until it is aggregated."""
        try:
            with closing(self._open(f"/containers/{quote(self.id)}/logs/stderr?size=-{_TAIL}")) as log:
                content = log.read(min(_length(log), _TAIL))
        except (OSError, ValueError, http.client.HTTPException):
            return []
        lines = content.decode(errors="replace").splitlines()[-_LINES:]
        return [f"{line}\n" for line in lines]

    def _open(self, path: str) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the ResourceManager's own address
            f"{self.manager}/ws/v1/node{path}", headers={"Accept": "application/json, text/plain"}
        )
        return urllib.request.build_opener(NoRedirect).open(request, timeout=_TIMEOUT_S)


def _length(log: Any) -> int:
    """Read the head of an answer; return the whole length of the log."""
    length = None
    for _ in range(_HEAD_LINES):
        name, _, value = log.readline().partition(b":")
        if name == b"LogLength":
            length = int(value)
        elif name == b"LogContents" and length is not None:
            return length
    raise ValueError("the NodeManager's answer has no log")
