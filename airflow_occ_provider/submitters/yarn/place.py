"""YARN as a place of drivers, by ``spark-submit`` and YARN's REST interfaces."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress

from airflow_occ_provider.attempts.submitter import URL_FACT, Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import SubmitterUnreachableError
from airflow_occ_provider.submitters.cluster_place import ClusterPlace
from airflow_occ_provider.submitters.launcher import SubmitCommand
from airflow_occ_provider.submitters.yarn.resource_manager import (
    Application,
    Container,
    ResourceManager,
)

COMMON_TAG = "airflow_occ"
"""The tag of all applications that this provider submits."""
_ATTEMPTS = "spark.yarn.maxAppAttempts"
_TAGS = "spark.yarn.tags"
_APPLICATION = re.compile(r"application_[0-9]{1,20}_[0-9]{1,20}")
_CONTAINER = re.compile(r"container_(?:e[0-9]+_)?[0-9]+_[0-9]+_[0-9]+_[0-9]+")


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
