"""A client of the ResourceManager's REST interface."""

from __future__ import annotations

import http
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError
from airflow_occ_provider.submitters.yarn.container import Container
from airflow_occ_provider.submitters.yarn.web import AUTHENTICATION_FIELD, NOT_SECURED, Access

MANAGERS_FIELD = "yarn_resourcemanager_webapp_address"
"""The key of a connection's extra that names the ResourceManagers of its cluster."""
_OVER = frozenset(("FINISHED", "FAILED", "KILLED"))
_CODE = re.compile(r"(?:exited with status|exitCode:) (-?\d+)")
_APPS = "/ws/v1/cluster/apps"
_PAUSE_S = 0.5
_REASON_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Application:
    """An application as the ResourceManager describes it.

    :param state: such as ``RUNNING``. In a final state its containers may still run.
    :param final_status: ``SUCCEEDED``, ``FAILED`` or ``KILLED``; ``UNDEFINED`` before its end.
    :param diagnostics: why it failed.
    :param tags: in lower case, as YARN keeps them.
    :param started_ms: when it was submitted, in milliseconds of the ResourceManager's clock.
    :param container: the container of its driver, if there is one yet.
    """

    id: str
    state: str
    final_status: str
    diagnostics: str
    tags: frozenset[str]
    started_ms: int
    container: Container | None
    tracking_url: str

    @property
    def is_over(self) -> bool:
        """Whether the ResourceManager has ended it."""
        return self.state in _OVER

    @property
    def exit_code(self) -> int:
        """The driver's exit code, negative for a signal, as far as YARN names it."""
        if self.final_status == "SUCCEEDED":
            return 0
        named = _CODE.search(self.diagnostics)
        code = int(named[1]) if named else 1
        if self.state == "KILLED" or code < 0:  # a negative one is YARN's own, which killed it
            return -9
        return 128 - code if code > 128 else code or 1

    @classmethod
    def of(cls, answer: Mapping[str, Any], access: Access = NOT_SECURED) -> Application:
        """Read an answer of the ResourceManager.

        :param access: to the nodes of its cluster.
        """
        return cls(
            answer["id"],
            answer["state"],
            answer.get("finalStatus", ""),
            answer.get("diagnostics", ""),
            frozenset(filter(None, answer.get("applicationTags", "").split(","))),
            answer.get("startedTime", 0),
            Container.of(answer.get("amContainerLogs", ""), answer.get("masterNodeId", ""), access),
            answer.get("trackingUrl", ""),
        )


@dataclass
class ResourceManager:
    """The ResourceManager of a cluster, of which several may stand by.

    :param addresses: web addresses, such as ``http://rm1:8088``.
    :param access: to their web services.
    :param timeout_s: of each call.
    :param patience_s: seconds during which calls that need an answer are repeated.
    """

    addresses: Sequence[str]
    access: Access = NOT_SECURED
    timeout_s: float = 10.0
    patience_s: float = 30.0
    _active: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.addresses = tuple(one.rstrip("/") for one in self.addresses)
        for one in self.addresses or ("",):
            parts = urlsplit(one)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
                raise ConfigurationError(
                    MANAGERS_FIELD,
                    f"{parts.hostname or one!r} is not a web address without a password",
                    remedy="give addresses such as http://rm1:8088",
                )

    def application(self, application: str) -> Application | None:
        """Return an application; ``None`` if the ResourceManager does not know it.

        :raises SubmitterUnreachableError: if no active ResourceManager answers one call.
        """
        answer = self._ask("GET", f"{_APPS}/{quote(application, safe='')}")
        return Application.of(answer["app"], self.access) if answer else None

    def applications(self, tag: str, patience_s: float | None = None) -> list[Application]:
        """Return the applications with a tag, in any state, the latest first.

        :param patience_s: in place of the ResourceManager's; 0 for one call.

        :raises SubmitterUnreachableError: if no active ResourceManager answers within the patience.
        """
        path = f"{_APPS}?applicationTags={quote(tag.lower(), safe='')}"
        patience_s = self.patience_s if patience_s is None else patience_s
        answer = (self._ask("GET", path, patience_s=patience_s) or {}).get("apps") or {}
        applications = [Application.of(fields, self.access) for fields in answer.get("app", ())]
        return sorted(applications, key=lambda app: (app.started_ms, app.id), reverse=True)

    def containers(self, application: str) -> list[Container]:
        """Return the drivers' containers of all attempts of an application.

        :raises SubmitterUnreachableError: if no active ResourceManager answers one call.
        """
        answer = self._ask("GET", f"{_APPS}/{quote(application, safe='')}/appattempts") or {}
        attempts = (answer.get("appAttempts") or {}).get("appAttempt", ())
        containers = [
            Container.of(attempt.get("logsLink", ""), attempt.get("nodeId", ""), self.access)
            for attempt in attempts
        ]
        return [container for container in containers if container]

    def kill(self, application: str) -> None:
        """Kill an application; no error if it is over or unknown.

        :raises SubmitterUnreachableError: if no active ResourceManager answers or it refuses.
        """
        self._ask("PUT", f"{_APPS}/{quote(application, safe='')}/state", {"state": "KILLED"})

    def _ask(
        self, method: str, path: str, body: Mapping[str, str] | None = None, *, patience_s: float = 0
    ) -> Any:
        """Return the active ResourceManager's answer; ``None`` for "not found"."""
        deadline = time.monotonic() + patience_s
        while True:
            reasons = []
            for address in sorted(self.addresses, key=lambda one: one != self._active):
                try:
                    answer = self._call(address, method, path, body)
                except (OSError, ValueError) as error:
                    reasons.append(f"{address}: {error}")
                else:
                    self._active = address
                    return answer
            if time.monotonic() >= deadline:
                raise SubmitterUnreachableError(
                    f"no active ResourceManager answers: {'; '.join(reasons)}",
                    remedy="check the addresses, and that a ResourceManager is active",
                )
            time.sleep(_PAUSE_S)

    def _call(self, address: str, method: str, path: str, body: Mapping[str, str] | None) -> Any:
        answer = self.access.ask(method, f"{address}{path}", timeout_s=self.timeout_s, body=body)
        if answer.ok and not answer.is_redirect:
            return answer.json()  # a standby's is a sentence
        if answer.status_code == http.HTTPStatus.NOT_FOUND and "NotFoundException" in answer.text:
            return None
        hint = ""
        if answer.status_code == http.HTTPStatus.UNAUTHORIZED and not self.access.authentication:
            hint = f"; give its {AUTHENTICATION_FIELD} in the Spark connection"
        raise OSError(f"{answer.status_code} {' '.join(answer.text.split())[:_REASON_LENGTH]}{hint}")
