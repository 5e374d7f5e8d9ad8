"""Pods of Kubernetes, in which ``spark-submit`` starts drivers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from airflow_occ_provider.attempts.site import Site
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import ConfigurationError, NotSubmittedError, SubmitterUnreachableError
from airflow_occ_provider.submitters.cluster_place import ClusterLaunch, ClusterPlace
from airflow_occ_provider.submitters.kubernetes.api import PodApi
from airflow_occ_provider.submitters.kubernetes.pod import Pod
from airflow_occ_provider.submitters.kubernetes.submission_conf import (
    IDENTITY_LABEL,
    NAMESPACE,
    identity_label,
    pod_name,
    submission_conf,
)

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
        launch: ClusterLaunch | None = None,
        *,
        identity: str = "",
        application: str = "",
        properties: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(launch)
        self._api, self._conn_id, self._identity = api, conn_id, identity
        self._application, self._properties = application, properties or {}
        self._pods: dict[str, Pod] = {}
        self._news: list[str] = []

    def refuse(self, site: Site) -> None:
        """Refuse a site whose drivers are in another namespace.

        :raises ConfigurationError: naming the setting.
        """
        namespace = site.spark_property(NAMESPACE)
        if namespace not in (None, self._api.namespace):
            raise ConfigurationError(
                f"{site.spark.name} {NAMESPACE}",
                f"is {namespace}, and the driver's pod would be looked for in {self._api.namespace}",
                remedy='name it in the Spark connection: {"namespace": "..."}',
            )

    def start(self, runner: str, arguments: Sequence[str]) -> None:
        """Submit the driver, see ``ClusterPlace.start``.

        The pod of a failed submission is ended.
        """
        try:
            super().start(runner, arguments)
        except NotSubmittedError:
            with suppress(SubmitterUnreachableError):  # without a grant it does nothing
                self.end(None, arguments[0])
            raise

    def conf(self, folder: str) -> Mapping[str, str]:
        """Return the properties of Spark for the submission."""
        return submission_conf(
            self._properties,
            identity=self._identity,
            pod=self._pod_of(folder),
            namespace=self._api.namespace,
        )

    def failure(self, folder: str) -> str:
        """Return how the pod ended before a driver waited; empty if it may come."""
        name = self._pod_of(folder)
        pod = self._api.pod(name)
        if pod is None:
            return (
                f"the cluster at {self._api.address} has no pod {name}; unless it was deleted, name the "
                "cluster of the Spark connection's master in kubernetes_conn_id"
            )
        if news := self._news_of(pod):
            _log.info("%s", news)
        if not isinstance(pod.proof(time.time()), Ended):
            return ""
        return "\n".join((self._described(pod), *self._tail(pod)))

    def identify(self, hello: Hello) -> tuple[str, Mapping[str, Any]]:
        """Return the pod of this submission: only its driver knows the folder."""
        super().identify(hello)
        namespace, pod = self._api.namespace, self._pod_of(self._folder)
        self._news.append(f"The driver's log: kubectl -n {namespace} logs -f {pod}\n")
        facts = {"conn_id": self._conn_id, "namespace": namespace, "pod": pod}
        return f"pod {namespace}/{pod}", facts

    def state(self, handle: Handle) -> Running | Ended | Unseen:
        """Return what the pod's node proves about the driver's container.

        A pod that is gone proves an end by its last state, if this process has seen it before.
        """
        name = str(handle.facts.get("pod"))
        pod, before = self._api.pod(name), self._pods.get(name)
        if pod:
            if news := self._news_of(pod):
                self._news.append(f"{news}\n")
            return pod.proof(time.time())
        last = self._api.last_state(before) if before else None
        self._pods.pop(name, None)
        state = last.proof(time.time()) if last else None
        if isinstance(state, Ended):
            return state
        return Unseen(f"pod {name} is gone, and its last state does not prove that the driver has ended")

    def end(self, handle: Handle | None, folder: str) -> None:
        """Have the pod ended."""
        self._api.end(str(handle.facts.get("pod")) if handle else self._pod_of(folder))

    def output(self, wait_s: float) -> list[str]:
        """Return the lines of ``spark-submit``, and what a pod says of its driver."""
        lines = super().output(0 if self._news else wait_s)
        news, self._news = self._news, []
        return [*lines, *news]

    def last_lines(self, handle: Handle) -> list[str]:
        """Return how the pod has ended, and the end of its driver's log."""
        with suppress(SubmitterUnreachableError):
            pod = self._api.pod(str(handle.facts.get("pod")))
            if pod:
                return [f"{line}\n" for line in (self._described(pod), *self._tail(pod))]
        return []

    def forget(self, identity: str) -> None:
        """Remove the pods of a task run, and with them all that they own."""
        try:
            for pod in self._api.drivers(f"{IDENTITY_LABEL}={identity_label(identity)}"):
                self._api.delete(pod)
        except SubmitterUnreachableError as error:
            _log.warning("The pods of the task run stay: %s", error.message)

    def _pod_of(self, folder: str) -> str:
        return pod_name(self._application, folder)

    def _news_of(self, pod: Pod) -> str:
        """Return what has changed of a pod for people; empty if nothing has."""
        before, self._pods[pod.name] = self._pods.get(pod.name), pod
        is_new = pod.describe() and (before is None or before.describe() != pod.describe())
        return self._described(pod) if is_new else ""

    def _described(self, pod: Pod) -> str:
        return f"Pod {self._api.namespace}/{pod.name}: {pod.describe() or 'its container runs'}"

    def _tail(self, pod: Pod) -> list[str]:
        """Return the last lines of its driver's log; none if the task may not read them."""
        with suppress(SubmitterUnreachableError):
            lines = self._api.last_lines(pod, _TAIL)
            return [f"The last lines of the log of pod {pod.name}:", *lines] if lines else []
        return []
