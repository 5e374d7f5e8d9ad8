"""YARN as a place of drivers, by ``spark-submit`` and YARN's REST interfaces."""

from __future__ import annotations

import hashlib
import http
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from airflow_occ_provider.attempts.submitter import URL_FACT, Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError, install_extra
from airflow_occ_provider.submitters.cluster_place import ClusterPlace
from airflow_occ_provider.submitters.launcher import SubmitCommand

AUTHENTICATION_FIELD = "yarn_authentication"
"""The key of a connection's extra that says how YARN's web services know their callers."""
AUTHORITIES_FIELD = "yarn_certificate_authorities"
"""The key of a connection's extra with the certificates of the authorities that they use."""
KERBEROS = "kerberos"
MANAGERS_FIELD = "yarn_resourcemanager_webapp_address"
"""The key of a connection's extra that names the ResourceManagers of its cluster."""
_OVER = frozenset(("FINISHED", "FAILED", "KILLED"))
_EXITED = re.compile(r"DONE|EXITED_\w+|CONTAINER_CLEANEDUP_AFTER_KILL|CONTAINER_RESOURCES_CLEANINGUP")
_TIMEOUT_S = 10.0
_APPS = "/ws/v1/cluster/apps"
_REASON_LENGTH = 300
COMMON_TAG = "airflow_occ"
"""The tag of all applications that this provider submits."""
_ATTEMPTS = "spark.yarn.maxAppAttempts"
_TAGS = "spark.yarn.tags"
_APPLICATION = re.compile(r"application_[0-9]{1,20}_[0-9]{1,20}")
_CONTAINER = re.compile(r"container_(?:e[0-9]+_)?[0-9]+_[0-9]+_[0-9]+_[0-9]+")


@dataclass(frozen=True, slots=True)
class YarnAccess:
    """How this process and the web services of a cluster know each other.

    :param authentication: ``kerberos`` for SPNEGO with this machine's ticket; empty for none.
    :param authorities: path of a PEM file with the certificates of their authorities; empty for those
        of this machine.
    """

    authentication: str = ""
    authorities: str = ""

    @classmethod
    def of(cls, extra: Mapping[str, Any]) -> YarnAccess:
        """Read the extra of a connection, or what ``to_json`` has returned.

        :raises ConfigurationError: if a value is none that can be used.
        """
        access = cls(str(extra.get(AUTHENTICATION_FIELD) or ""), str(extra.get(AUTHORITIES_FIELD) or ""))
        if access.authentication not in ("", KERBEROS):
            raise ConfigurationError(
                AUTHENTICATION_FIELD,
                f"{access.authentication!r} is not known",
                remedy=f'give "{KERBEROS}", or leave it out for a cluster that is not secured',
            )
        if access.authorities and not Path(access.authorities).is_file():
            raise ConfigurationError(
                AUTHORITIES_FIELD,
                f"{access.authorities} is not a file",
                remedy="give the path of a PEM file on the workers and triggerers",
            )
        return access

    def to_json(self) -> dict[str, str]:
        """Return the fields by which another process has the same access."""
        fields = {AUTHENTICATION_FIELD: self.authentication, AUTHORITIES_FIELD: self.authorities}
        return {name: value for name, value in fields.items() if value}

    def ask(
        self, method: str, url: str, *, timeout_s: float, body: Mapping[str, str] | None = None
    ) -> requests.Response:
        """Return an answer, of any status.

        No redirection is followed: a server may name any host, and a standby ResourceManager redirects
        too.

        :param timeout_s: until the connection is made, and between two parts of the answer.
        :param body: for a request that changes something.
        :raises OSError: if there is none, or the server is not trusted.
        :raises ConfigurationError: if Kerberos is needed and not installed.
        """
        return requests.request(
            method,
            url,
            json=body,
            headers={"Accept": "application/json, text/plain"},
            auth=_spnego() if self.authentication else None,
            verify=self.authorities or True,
            allow_redirects=False,
            timeout=timeout_s,
        )


NOT_SECURED = YarnAccess()


def _spnego() -> Any:
    """Return what shows this machine's ticket.

    :raises ConfigurationError: if its package is not installed.
    """
    try:
        from requests_gssapi import OPTIONAL, HTTPSPNEGOAuth
    except ImportError as error:
        raise ConfigurationError(
            AUTHENTICATION_FIELD,
            "it asks for Kerberos, whose package is not installed",
            remedy=f"{install_extra(KERBEROS)} on the workers and triggerers",
        ) from error
    # A server that does not prove itself back is known by its certificate, if at all.
    return HTTPSPNEGOAuth(mutual_authentication=OPTIONAL, opportunistic_auth=True)


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


class YarnPlace(ClusterPlace):
    """Runs drivers in containers of YARN.

    :param manager: the ResourceManager of the cluster.
    :param settings: the user's configuration of Spark.
    """

    name = "yarn"

    def __init__(
        self,
        manager: ResourceManager,
        launch: SubmitCommand | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(launch)
        self._manager, self._settings = manager, settings or {}

    def conf(self, folder: str) -> Mapping[str, str]:
        """Return the properties of Spark for the submission."""
        return submission_conf(self._settings, folder)

    def failure(self, folder: str) -> str:
        """Return why no driver of a submission will come: YARN has none, or has ended it.

        :raises SubmitterUnreachableError: if the ResourceManager does not answer.
        """
        tag = attempt_tag(folder)
        applications = self._manager.applications(tag)
        if not applications:
            shown = " and ".join(self._manager.addresses)
            return f"{shown} shows no application with the tag {tag}: is it that of another cluster?"
        if not all(application.is_over for application in applications):
            return ""
        application = max(applications, key=lambda application: application.started_ms)
        return (
            f"{application.id} is {application.state}: {application.diagnostics}\n{_where(application)}"
        )

    def identify(self, hello: Hello) -> tuple[str, Mapping[str, object]]:
        """Return the driver's application, as it has named it."""
        name, _ = super().identify(hello)
        application = _shaped(_APPLICATION, hello, "application_id")
        facts = {
            "application": application,
            "container": _shaped(_CONTAINER, hello, "container"),
            "resource_managers": list(self._manager.addresses),
            **self._manager.access.to_json(),
        }
        if not application:
            return name, facts
        url = f"{self._manager.addresses[0]}/cluster/app/{application}"
        return f"YARN {application}", {**facts, URL_FACT: url}

    def state(self, handle: Handle) -> Running | Ended | Unseen:
        """Return what YARN proves; a final state alone does not prove an end.

        A killed application is ``KILLED`` before its node ends the container, and one whose node is lost
        is ``FAILED`` while its container may run on, beside that of a second attempt. The container's
        node proves the end.

        :raises SubmitterUnreachableError: if the ResourceManager does not answer.
        """
        application = self._application(handle)
        if application is None:
            return Unseen("YARN does not know the application")
        latest = application.container
        is_latest = latest is not None and latest.id == handle.facts.get("container")
        if is_latest and not application.is_over:
            return Running()
        if not application.started_ms:
            return Unseen("the ResourceManager hides the application from this user")
        container = self._container(application, handle)
        if container is None:
            return Unseen(f"YARN does not name the driver's container in {application.id}")
        lives = container.lives(application.started_ms)
        if lives is None:
            return Unseen(
                f"{application.id} is {application.state}, but the driver's node {container.manager} "
                "does not prove that it has ended"
            )
        return Running() if lives else Ended(None)

    def end(self, handle: Handle | None, folder: str) -> None:
        """Kill the applications of an attempt.

        :raises SubmitterUnreachableError: if the ResourceManager does not answer.
        """
        folder = str(handle.facts.get("folder", "")) if handle else folder
        for application in self._manager.applications(attempt_tag(folder)):
            if not application.is_over:
                self._manager.kill(application.id)

    def last_lines(self, handle: Handle) -> list[str]:
        """Return where YARN has the driver's log."""
        with suppress(SubmitterUnreachableError):
            application = self._application(handle)
            return [_where(application)] if application else []
        return []

    def _application(self, handle: Handle) -> Application | None:
        """Return the driver's application: what it named, if that was submitted for its attempt."""
        name = str(handle.facts.get("application", ""))
        application = self._manager.application(name) if name else None
        tag = attempt_tag(str(handle.facts.get("folder", "")))
        return application if application and tag in application.tags else None

    def _container(self, application: Application, handle: Handle) -> Container | None:
        """Return the driver's container, which may be that of an earlier attempt of YARN."""
        name, latest = handle.facts.get("container"), application.container
        if latest and latest.id == name:
            return latest
        containers = self._manager.containers(application.id)
        return next((container for container in containers if container.id == name), None)


def _shaped(shape: re.Pattern[str], hello: Hello, name: str) -> str:
    """Return what a hello has under a name, if that has the right shape: it may be anything."""
    text = hello.details.get(name, "")
    return text if shape.fullmatch(text) else ""


def _where(application: Application) -> str:
    """Return where YARN has the log of its driver."""
    shown = f", and {application.tracking_url}" if application.tracking_url else ""
    return f"YARN has the driver's log: yarn logs -applicationId {application.id}{shown}\n"


def attempt_tag(folder: str) -> str:
    """Return the tag of what was submitted for one attempt.

    :param folder: URL of the attempt's folder.
    """
    return f"{COMMON_TAG}_{hashlib.sha256(folder.encode()).hexdigest()[:32]}"


def submission_conf(conf: Mapping[str, object], folder: str) -> dict[str, str]:
    """Return Spark's configuration for one submission.

    A second attempt of YARN is not granted, and costs a container for nothing.

    :param conf: the user's configuration.
    :param folder: URL of the attempt's folder.
    """
    tags = [tag.strip() for tag in str(conf.get(_TAGS, "")).split(",") if tag.strip()]
    return {
        _ATTEMPTS: "1",
        **{name: str(value) for name, value in conf.items()},
        _TAGS: ",".join([*tags, COMMON_TAG, attempt_tag(folder)]),
        "spark.yarn.submit.waitAppCompletion": "false",
    }
