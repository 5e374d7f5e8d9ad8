"""Drivers in pods of Kubernetes: ``spark-submit``, the API, and what a pod proves."""

from __future__ import annotations

import hashlib
import http
import json
import logging
import re
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError
from airflow_occ_provider.submitters.cluster_place import ClusterPlace
from airflow_occ_provider.submitters.launcher import SubmitCommand

_DRIVER_CONTAINER = "spark-kubernetes-driver"
_BIND_ADDRESS = "SPARK_DRIVER_BIND_ADDRESS"  # Spark sets it in the driver's container alone
_OVER = ("Succeeded", "Failed")
_CONFIRM_S = 60.0
_WAITS_AS_USUAL = ("ContainerCreating", "PodInitializing")
_TIMEOUTS_S = (5.0, 15.0)  # for a connection, and for each part of an answer
_MOST_OF_A_LOG = 1 << 16
_ENDS_NOW = {"spec": {"activeDeadlineSeconds": 1}}
"""The change after which a node ends a pod, and keeps its status and its log: a deletion takes both."""
_GONE = (http.HTTPStatus.NOT_FOUND,)
_GONE_OR_ANOTHER = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT)
_NO_LOG = (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.BAD_REQUEST)
IDENTITY_LABEL = "airflow-occ-identity"
_NAMESPACE = "spark.kubernetes.namespace"
_PLAIN_IDENTITY = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_NO_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_PREFIX = 38  # a pod's name is its host's too, so it has 63 characters at most
_TAIL = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as its API server shows it.

    :param shown: its JSON.
    """

    shown: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name, unique among the pods that its namespace has now."""
        return str(self.shown["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Its id, which no other pod ever has."""
        return str(self.shown["metadata"]["uid"])

    @property
    def node(self) -> str:
        """The node to which it is bound, empty before."""
        return str(self.shown["spec"].get("nodeName") or "")

    @property
    def container(self) -> str:
        """The name of the driver's container; there may be others beside it."""
        containers = self.shown["spec"]["containers"]
        for container in containers:
            if any(variable["name"] == _BIND_ADDRESS for variable in container.get("env") or ()):
                return str(container["name"])
        names = [str(container["name"]) for container in containers]
        return _DRIVER_CONTAINER if _DRIVER_CONTAINER in names else names[0]

    @property
    def is_living(self) -> bool:
        """Whether a container of it may run, as far as its phase shows."""
        return self._status.get("phase") not in _OVER

    def proof(self, now_s: float) -> Running | Ended | Unseen:
        """Return whether the driver is alive, as far as the node has told the API server.

        A phase alone proves nothing: the pod of a lost node is ``Failed`` while its container may
        run. A node reports a container as ``terminated`` once it has none of its processes.

        :param now_s: seconds since the epoch.
        """
        if "terminated" in self._state:
            return Ended(None)
        where = f"its node {self.node}" if self.node else "no node"
        silence = f"{where} does not prove that the driver has ended"
        if not self.is_living:
            return Unseen(f"pod {self.name} is {self._status.get('phase')}, but {silence}")
        deleted = self.shown["metadata"].get("deletionTimestamp")
        if deleted and now_s > datetime.fromisoformat(deleted).timestamp() + _CONFIRM_S:
            return Unseen(f"pod {self.name} is deleted, but {silence}")
        return Running()

    def describe(self) -> str:
        """Return what its driver waits for, or how it ended; empty while it runs."""
        state, phase = self._state, self._status.get("phase")
        ended, waiting = state.get("terminated"), state.get("waiting")
        if ended:
            reasons = filter(None, (ended.get("reason"), self._status.get("reason")))
            why = "; the pod: ".join(reasons) or "no reason given"
            return f"container {self.container} ended with exit code {ended['exitCode']} ({why})"
        if not self.is_living:
            return f"{phase} ({_said(self._status) or 'no reason given'})"
        if waiting and waiting.get("reason") not in _WAITS_AS_USUAL:
            return f"{phase}: {_said(waiting)}"
        conditions = self._status.get("conditions") or ()
        unbound = next((each for each in conditions if each.get("reason") == "Unschedulable"), None)
        return f"{phase}: {_said(unbound)}" if unbound else ""

    @property
    def _status(self) -> Mapping[str, Any]:
        return self.shown.get("status") or {}

    @property
    def _state(self) -> Mapping[str, Any]:
        """The state of the driver's container; empty if its node has reported none."""
        name = self.container
        statuses = self._status.get("containerStatuses") or ()
        return next((status.get("state") or {} for status in statuses if status["name"] == name), {})


def _said(state: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (state.get("reason"), state.get("message"))))


class PodApi:
    """The pods of drivers in one namespace.

    Each call raises ``SubmitterUnreachableError`` if the cluster does not answer or refuses it.

    :param client: the ``ApiClient`` of the package ``kubernetes``.
    :param namespace: of the drivers.
    """

    def __init__(self, client: Any, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    @property
    def address(self) -> str:
        """The cluster's address and the namespace, for messages."""
        return f"{self._client.configuration.host}, namespace {self.namespace!r}"

    def drivers(self, selector: str) -> list[Pod]:
        """Return the pods of drivers with a label."""
        answer = self._call("GET", "pods", {"labelSelector": f"{selector},spark-role=driver"})
        return [Pod(shown) for shown in json.loads(answer)["items"]] if answer else []

    def pod(self, name: str) -> Pod | None:
        """Return a pod; ``None`` if there is none of the name."""
        answer = self._call("GET", f"pods/{name}")
        return answer if answer is None else Pod(json.loads(answer))

    def last_lines(self, pod: Pod, count: int) -> list[str]:
        """Return the last lines of its driver's log; none if its node has it no more."""
        query = {"container": pod.container, "tailLines": count, "limitBytes": _MOST_OF_A_LOG}
        answer = self._call("GET", f"pods/{pod.name}/log", query, missing=_NO_LOG)
        return bytes(answer or b"").decode(errors="replace").splitlines()

    def end(self, name: str) -> None:
        """Have a pod ended. Its status and its log stay where a node knows it."""
        pod = self.pod(name)
        if pod and pod.node:
            self._call("PATCH", f"pods/{name}", body=_ENDS_NOW)
        elif pod:
            self.delete(pod)

    def delete(self, pod: Pod) -> None:
        """Delete a pod, and with it all that it owns."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": pod.uid},
            "propagationPolicy": "Background",
        }
        self._call("DELETE", f"pods/{pod.name}", body=body, missing=_GONE_OR_ANOTHER)

    def _call(
        self,
        verb: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        *,
        body: Mapping[str, Any] | None = None,
        missing: tuple[int, ...] = _GONE,
    ) -> Any:
        """Return the bytes of an answer.

        :param missing: statuses that are answered by ``None``.
        """
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        try:
            answer = self._client.call_api(
                f"/api/v1/namespaces/{self.namespace}/{path}",
                verb,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json, */*", "Content-Type": kind},
                body=body,
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=_TIMEOUTS_S,
            )
            with closing(answer):
                return answer.data
        except ApiException as error:
            if error.status in missing:
                return None
            raise SubmitterUnreachableError(
                f"the cluster at {self.address} answers {verb} {path} by {error.status} {error.reason}: "
                f"{_message(error.body)}",
                remedy="check the account of the task, and its rights in the namespace",
            ) from error
        except (HTTPError, OSError, ValueError) as error:
            raise SubmitterUnreachableError(
                f"the cluster at {self.address} does not answer: {type(error).__name__}: {error}",
                remedy="check the cluster's address and its API server",
            ) from error


def _message(body: Any) -> str:
    try:
        return str(json.loads(body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(body)[:200]


class KubernetesPlace(ClusterPlace):
    """Starts drivers in pods. The name of a pod follows from its attempt's folder.

    :param api: the cluster to which the launch submits, and its namespace.
    :param conn_id: of the cluster's connection, by which another process finds it; empty without.
    :param launch: ``None`` where drivers were started by other processes.
    :param identity: of the task run.
    :param application: name of the application, for people.
    :param properties: the user's properties of Spark.
    """

    name = "kubernetes"

    def __init__(
        self,
        api: PodApi,
        conn_id: str = "",
        launch: SubmitCommand | None = None,
        *,
        identity: str = "",
        application: str = "",
        properties: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(launch)
        self._api, self._conn_id, self._identity = api, conn_id, identity
        self._application, self._properties = application, properties or {}
        self._told = ""
        self._news: list[str] = []

    def refuse(self, site: Site) -> None:
        """Refuse a site whose drivers are in another namespace.

        :raises ConfigurationError: naming the setting.
        """
        namespace = site.spark_property(_NAMESPACE)
        if namespace not in (None, self._api.namespace):
            raise ConfigurationError(
                f"{site.spark.name} {_NAMESPACE}",
                f"is {namespace}, and the driver's pod would be looked for in {self._api.namespace}",
                remedy='name it in the Spark connection: {"namespace": "..."}',
            )

    def conf(self, folder: str) -> Mapping[str, str]:
        """Return the properties of Spark for the submission."""
        label = identity_label(self._identity)
        return {
            **{name: str(value) for name, value in self._properties.items()},
            f"spark.kubernetes.driver.label.{IDENTITY_LABEL}": label,
            f"spark.kubernetes.executor.label.{IDENTITY_LABEL}": label,
            _NAMESPACE: self._api.namespace,
            # Also in place of the user's own name: with it, a next try's pod would be refused.
            "spark.kubernetes.driver.pod.name": pod_name(self._application, folder),
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }

    def failure(self, folder: str) -> str:
        """Return how the pod ended before a driver waited; empty if it may come."""
        name = pod_name(self._application, folder)
        pod = self._api.pod(name)
        if pod is None:
            return (
                f"the cluster at {self._api.address} has no pod {name}; unless it was deleted, name the "
                "cluster of the Spark connection's master in kubernetes_conn_id"
            )
        self._tell(pod)
        if pod.is_living and not isinstance(pod.proof(time.time()), Ended):
            return ""
        return "".join(self._end_of(pod))

    def identify(self, hello: Hello) -> tuple[str, Mapping[str, Any]]:
        """Return the pod of this submission: only its driver knows the folder."""
        super().identify(hello)
        namespace, pod = self._api.namespace, pod_name(self._application, self._folder)
        self._news.append(f"The driver's log: kubectl -n {namespace} logs -f {pod}\n")
        name = f"pod {namespace}/{pod}"
        return name, {"conn_id": self._conn_id, "namespace": namespace, "pod": pod}

    def state(self, handle: Handle) -> Running | Ended | Unseen:
        """Return what the pod's node proves about the driver's container.

        A pod that is gone proves nothing.
        """
        name = str(handle.facts.get("pod"))
        pod = self._api.pod(name)
        if pod is None:
            return Unseen(f"pod {name} is gone, which does not prove that the driver has ended")
        self._tell(pod)
        return pod.proof(time.time())

    def end(self, handle: Handle | None, folder: str) -> None:
        """Have the pod ended."""
        self._api.end(str(handle.facts.get("pod")) if handle else pod_name(self._application, folder))

    def output(self, wait_s: float) -> list[str]:
        """Return the lines of ``spark-submit``, and what a pod says of its driver."""
        lines = super().output(0 if self._news else wait_s)
        news, self._news = self._news, []
        return [*lines, *news]

    def last_lines(self, handle: Handle) -> list[str]:
        """Return how the pod has ended, and the end of its driver's log."""
        with suppress(SubmitterUnreachableError):
            pod = self._api.pod(str(handle.facts.get("pod")))
            return self._end_of(pod) if pod else []
        return []

    def forget(self, identity: str) -> None:
        """Remove the pods of a task run, and with them all that they own."""
        try:
            for pod in self._api.drivers(f"{IDENTITY_LABEL}={identity_label(identity)}"):
                self._api.delete(pod)
        except SubmitterUnreachableError as error:
            _log.warning("The pods of the task run stay: %s", error.message)

    def _tell(self, pod: Pod) -> None:
        """Tell people what a pod waits for, or how it ended, once."""
        if pod.describe() not in ("", self._told):
            self._news.append(self._line_of(pod))
        self._told = pod.describe()

    def _line_of(self, pod: Pod) -> str:
        return f"Pod {self._api.namespace}/{pod.name}: {pod.describe() or 'its container runs'}\n"

    def _end_of(self, pod: Pod) -> list[str]:
        """Return how a pod has ended, and the last lines of its log if the task may read them."""
        lines = [self._line_of(pod)]
        with suppress(SubmitterUnreachableError):
            tail = self._api.last_lines(pod, _TAIL)
            if tail:
                lines.append(f"The last lines of the log of pod {pod.name}:\n")
                lines += [f"{line}\n" for line in tail]
        return lines


def identity_label(identity: str) -> str:
    """Return the label of all pods of a task run."""
    is_plain = _PLAIN_IDENTITY.fullmatch(identity)
    return identity if is_plain else hashlib.sha256(identity.encode()).hexdigest()[:40]


def pod_name(application: str, folder: str) -> str:
    """Return the name of an attempt's driver pod, which no other attempt has.

    :param application: name of the application, for people.
    :param folder: URL of the attempt's folder.
    """
    prefix = _NO_NAME.sub("-", application.lower())[:_LONGEST_PREFIX].strip("-")
    attempt = hashlib.sha256(folder.encode()).hexdigest()[:12]
    return "-".join(filter(None, (prefix, attempt, "driver")))
