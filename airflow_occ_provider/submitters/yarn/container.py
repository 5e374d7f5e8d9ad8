"""A client of the NodeManager that runs a driver's container."""

from __future__ import annotations

import http
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow_occ_provider.submitters.yarn.web import NOT_SECURED, Access

if TYPE_CHECKING:
    import requests

_TIMEOUT_S = 10.0
_EXITED = re.compile(r"DONE|EXITED_\w+|CONTAINER_CLEANEDUP_AFTER_KILL|CONTAINER_RESOURCES_CLEANINGUP")
_LENGTH = re.compile(rb"^LogLength:\s*(\d+)", re.MULTILINE)
_TAIL = 8 * 1024
_LINES = 20


@dataclass(frozen=True, slots=True)
class Container:
    """A container and where it runs.

    :param manager: web address of its NodeManager.
    :param id: such as ``container_1795412430323_0001_01_000001``.
    :param node: host and port by which YARN names the node.
    :param access: to its NodeManager.
    """

    manager: str
    id: str
    node: str
    access: Access = NOT_SECURED

    @classmethod
    def of(cls, logs: str, node: str, access: Access = NOT_SECURED) -> Container | None:
        """Return the container with a page of logs, as the ResourceManager names it.

        :param logs: ``http://host:port/node/containerlogs/CONTAINER/USER``.
        :param node: host and port of the node.
        :param access: to the NodeManager.
        """
        parts = urlsplit(logs)
        found = re.search(r"/containerlogs/(container_\w+)", parts.path)
        return cls(f"{parts.scheme}://{parts.netloc}", found[1], node, access) if found else None

    def lives(self, since_ms: int) -> bool | None:
        """Return whether its processes may run; ``None`` if the node does not prove it.

        :param since_ms: before its start. A NodeManager that started later may have lost it.
        """
        try:
            answer = self._ask(f"/containers/{quote(self.id)}")
            if answer.ok:
                return not _EXITED.fullmatch(answer.json()["container"]["state"])
        except (OSError, ValueError, KeyError):
            return None
        is_unknown = answer.status_code == http.HTTPStatus.NOT_FOUND and "NotFound" in answer.text
        return False if is_unknown and self._has_run_since(since_ms) else None

    def _has_run_since(self, since_ms: int) -> bool:
        try:
            return bool(0 < self._ask("/info").json()["nodeInfo"]["nmStartupTime"] <= since_ms)
        except (OSError, ValueError, KeyError):
            return False

    def last_lines(self) -> list[str]:
        """Return the last lines of its log, if the node serves it: until it is aggregated."""
        try:
            answer = self._ask(f"/containers/{quote(self.id)}/logs/stderr?size=-{_TAIL}")
        except OSError:
            return []
        head, mark, log = answer.content.partition(b"LogContents:\n")
        length = _LENGTH.search(head)
        if not (answer.ok and mark and length):
            return []
        content = log[: min(int(length[1]), _TAIL)]
        lines = content.decode(errors="replace").splitlines()[-_LINES:]
        return [f"{line}\n" for line in lines]

    def _ask(self, path: str) -> requests.Response:
        """Return the NodeManager's answer, of any status.

        :raises OSError: if there is none.
        """
        return self.access.ask("GET", f"{self.manager}/ws/v1/node{path}", timeout_s=_TIMEOUT_S)
