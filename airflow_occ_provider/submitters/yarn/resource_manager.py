"""Clients of YARN's REST interfaces: of its ResourceManager, and of its nodes."""

from __future__ import annotations

import http
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError
from airflow_occ_provider.submitters.yarn.web import AUTHENTICATION_FIELD, NOT_SECURED, YarnAccess

if TYPE_CHECKING:
    import requests

MANAGERS_FIELD = "yarn_resourcemanager_webapp_address"
"""The key of a connection's extra that names the ResourceManagers of its cluster."""
_OVER = frozenset(("FINISHED", "FAILED", "KILLED"))
_EXITED = re.compile(r"DONE|EXITED_\w+|CONTAINER_CLEANEDUP_AFTER_KILL|CONTAINER_RESOURCES_CLEANINGUP")
_TIMEOUT_S = 10.0
_APPS = "/ws/v1/cluster/apps"
_REASON_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Container:
    """A container and where it runs.

    :param manager: web address of its NodeManager.
    :param id: such as ``container_1795412430323_0001_01_000001``.
    :param access: to its NodeManager.
    """

    manager: str
    id: str
    access: YarnAccess = NOT_SECURED

    @classmethod
    def of(cls, logs: str, access: YarnAccess = NOT_SECURED) -> Container | None:
        """Return the container with a page of logs, as the ResourceManager names it.

        :param logs: ``http://host:port/node/containerlogs/CONTAINER/USER``.
        :param access: to the NodeManager.
        """
        parts = urlsplit(logs)
        named = re.search(r"/containerlogs/(container_\w+)", parts.path)
        return cls(f"{parts.scheme}://{parts.netloc}", named[1], access) if named else None

    def lives(self, since_ms: int) -> bool | None:
        """Return whether its processes may run; ``None`` if the node does not prove it.

        :param since_ms: before its start. A NodeManager that started later may have lost it.
        """
        started_ms = 0
        try:
            answer = self._ask(f"/containers/{quote(self.id)}")
            if answer.ok:
                return not _EXITED.fullmatch(answer.json()["container"]["state"])
            if answer.status_code == http.HTTPStatus.NOT_FOUND and "NotFound" in answer.text:
                started_ms = self._ask("/info").json()["nodeInfo"]["nmStartupTime"]
        except (OSError, ValueError, KeyError):
            return None
        return False if 0 < started_ms <= since_ms else None

    def _ask(self, path: str) -> requests.Response:
        """Return the NodeManager's answer, of any status.

        :raises OSError: if there is none.
        """
        return self.access.ask("GET", f"{self.manager}/ws/v1/node{path}", timeout_s=_TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Application:
    """An application as the ResourceManager describes it.

    :param state: such as ``RUNNING``. In a final state its containers may still run.
    :param diagnostics: why it failed.
    :param tags: in lower case, as YARN keeps them.
    :param started_ms: when it was submitted, in milliseconds of the ResourceManager's clock.
    :param container: the container of its driver, if there is one yet.
    """

    id: str
    state: str
    diagnostics: str
    tags: frozenset[str]
    started_ms: int
    container: Container | None
    tracking_url: str

    @property
    def is_over(self) -> bool:
        """Whether the ResourceManager has ended it."""
        return self.state in _OVER

    @classmethod
    def of(cls, answer: Mapping[str, Any], access: YarnAccess = NOT_SECURED) -> Application:
        """Read an answer of the ResourceManager.

        :param access: to the nodes of its cluster.
        """
        return cls(
            answer["id"],
            answer["state"],
            answer.get("diagnostics", ""),
            frozenset(filter(None, answer.get("applicationTags", "").split(","))),
            answer.get("startedTime", 0),
            Container.of(answer.get("amContainerLogs", ""), access),
            answer.get("trackingUrl", ""),
        )


@dataclass
class ResourceManager:
    """The ResourceManager of a cluster, of which several may stand by.

    :param addresses: web addresses, such as ``http://rm1:8088``.
    :param access: to their web services.
    """

    addresses: Sequence[str]
    access: YarnAccess = NOT_SECURED
    _active: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.addresses = tuple(address.rstrip("/") for address in self.addresses)
        for address in self.addresses or ("",):
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
                raise ConfigurationError(
                    MANAGERS_FIELD,
                    f"{parts.hostname or address!r} is not a web address without a password",
                    remedy="give addresses such as http://rm1:8088",
                )

    def application(self, application: str) -> Application | None:
        """Return an application; ``None`` if the ResourceManager does not know it.

        :raises SubmitterUnreachableError: if no active ResourceManager answers one call.
        """
        answer = self._ask("GET", f"{_APPS}/{quote(application, safe='')}")
        return Application.of(answer["app"], self.access) if answer else None

    def applications(self, tag: str) -> list[Application]:
        """Return the applications with a tag, in any state.

        :raises SubmitterUnreachableError: if no active ResourceManager answers one call.
        """
        answer = self._ask("GET", f"{_APPS}?applicationTags={quote(tag.lower(), safe='')}") or {}
        shown = (answer.get("apps") or {}).get("app", ())
        return [Application.of(fields, self.access) for fields in shown]

    def containers(self, application: str) -> list[Container]:
        """Return the drivers' containers of all attempts of an application.

        :raises SubmitterUnreachableError: if no active ResourceManager answers one call.
        """
        answer = self._ask("GET", f"{_APPS}/{quote(application, safe='')}/appattempts") or {}
        attempts = (answer.get("appAttempts") or {}).get("appAttempt", ())
        containers = [Container.of(attempt.get("logsLink", ""), self.access) for attempt in attempts]
        return [container for container in containers if container]

    def kill(self, application: str) -> None:
        """Kill an application; no error if it is over or unknown.

        :raises SubmitterUnreachableError: if no active ResourceManager answers or it refuses.
        """
        self._ask("PUT", f"{_APPS}/{quote(application, safe='')}/state", {"state": "KILLED"})

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Return the active ResourceManager's answer; ``None`` for "not found"."""
        reasons = []
        for address in sorted(self.addresses, key=lambda address: address != self._active):
            try:
                answer = self._call(address, method, path, body)
            except (OSError, ValueError) as error:
                reasons.append(f"{address}: {error}")
            else:
                self._active = address
                return answer
        raise SubmitterUnreachableError(
            f"no active ResourceManager answers: {'; '.join(reasons)}",
            remedy="check the addresses, and that a ResourceManager is active",
        )

    def _call(self, address: str, method: str, path: str, body: Mapping[str, str] | None) -> Any:
        answer = self.access.ask(method, f"{address}{path}", timeout_s=_TIMEOUT_S, body=body)
        if answer.ok and not answer.is_redirect:
            return answer.json()  # a standby's is a sentence
        if answer.status_code == http.HTTPStatus.NOT_FOUND and "NotFoundException" in answer.text:
            return None
        hint = ""
        if answer.status_code == http.HTTPStatus.UNAUTHORIZED and not self.access.authentication:
            hint = f"; give its {AUTHENTICATION_FIELD} in the Spark connection"
        raise OSError(f"{answer.status_code} {' '.join(answer.text.split())[:_REASON_LENGTH]}{hint}")
