"""Pods of Kubernetes, in which ``spark-submit`` starts drivers."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError
from airflow_occ_provider.submitters.cluster_place import ClusterPlace
from airflow_occ_provider.submitters.kubernetes.api import PodApi
from airflow_occ_provider.submitters.kubernetes.pod import Pod
from airflow_occ_provider.submitters.launcher import SubmitCommand

IDENTITY_LABEL = "airflow-occ-identity"
_NAMESPACE = "spark.kubernetes.namespace"
_PLAIN_IDENTITY = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_NO_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_PREFIX = 38  # a pod's name is its host's too, so it has 63 characters at most
_TAIL = 20
_log = logging.getLogger(__name__)


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
