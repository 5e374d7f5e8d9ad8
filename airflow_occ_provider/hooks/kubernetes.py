"""Drivers in pods of the cluster that a Spark connection names."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook

from airflow_occ_provider.attempts.clean_run import clean_key
from airflow_occ_provider.attempts.identity import IDENTITY_KEY
from airflow_occ_provider.attempts.submission import (
    SparkJob,
    Submission,
    driver_input,
    local_path,
    private_folder,
    runner_arguments,
    write_privately,
)
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError, SubmitterUnreachableError, install_extra
from airflow_occ_provider.hooks.launch import Launch, PlannedJob
from airflow_occ_provider.in_driver import run_job
from airflow_occ_provider.submitters.kubernetes.api import PodApi
from airflow_occ_provider.submitters.kubernetes.cluster import KubernetesCluster
from airflow_occ_provider.submitters.kubernetes.manifests import (
    FOLDER,
    NAMESPACE,
    refuse_conf,
    refuse_large,
)
from airflow_occ_provider.submitters.spark_submit import Flag

_MASTER = "k8s://"
_CONNECTION = "kubernetes_conn_id"
_OF_IMAGE = "local://"
_CONTEXT = "spark.kubernetes.context"

_log = logging.getLogger(__name__)


@dataclass
class KubernetesDrivers:
    """The drivers of one task, in pods.

    :param conn_id: connection of type ``kubernetes`` with the cluster's address and the account;
        ``None`` for the pod in which this process runs, else for its kubeconfig.
    :param namespace: of the pods; by default the connection's, or ``default``.
    """

    conn_id: str | None
    namespace: str | None = None
    deploy_mode = "cluster"
    is_remote = True
    site = None

    def refuse(self, planned: PlannedJob) -> None:
        """Refuse settings with which a pod is not found, or not made again."""
        site = planned.site
        refuse_conf(planned.job.conf)
        refuse_conf(dict(site.spark.options), site.spark.name)
        elsewhere = site.spark_property(NAMESPACE)
        if elsewhere not in (None, self._namespace):
            raise ConfigurationError(
                f"{site.spark.name} {NAMESPACE}",
                f"is {elsewhere}, and the driver's pod would be looked for in {self._namespace}",
                remedy='name it in the Spark connection: {"namespace": "..."}',
            )
        _ = self._api

    @contextmanager
    def prepared(
        self, job: SparkJob, options: Mapping[str, str], *, without: Sequence[str] = ()
    ) -> Iterator[Submission]:
        """Make the input, which the driver finds in a Secret."""
        content = {"run_job.py": Path(run_job.__file__).read_bytes()}
        application, path = job.application, local_path(job.application, is_remote=True)
        if path is not None:
            application = f"{FOLDER}/{Path(path).name}"
            content[Path(path).name] = Path(path).read_bytes()
        given = driver_input(replace(job, application=application), options, without)
        content["payload.json"] = json.dumps(given).encode()
        refuse_large(content)
        with private_folder(options[IDENTITY_KEY]) as folder:
            yield Submission(
                f"{_OF_IMAGE}{FOLDER}/run_job.py",
                runner_arguments(f"{FOLDER}/payload.json", content["payload.json"]),
                self._kubeconfig(folder),
                content=content,
                folder=str(folder),
            )

    def forget(self, identity: str) -> None:
        """Remove the pods of a task run, and with them all that they own."""
        try:
            for key in (identity, clean_key(identity, outlives=True)):
                self.follower(Flag()).forget(key)
        except SubmitterUnreachableError as error:
            _log.warning("The pods of the task run stay: %s", error.message)

    def submitter(self, launch: Launch) -> KubernetesCluster:
        """Return the submitter of a command that Spark's hook builds."""
        spark, context = launch.spark, self._extra.get("cluster_context")
        spark._connection = {**spark._connection, "namespace": None}  # it is in the configuration
        return self._cluster(
            launch.killed,
            command=launch.command_with,
            start_limit=launch.start_limit,
            conf={**({_CONTEXT: context} if context else {}), **spark._conf},
            content=launch.submission.content,
            environment=launch.environment,
        )

    def follower(self, killed: Flag) -> KubernetesCluster:
        """Return a submitter that follows pods of earlier processes."""
        return self._cluster(killed)

    def _cluster(self, killed: Flag, **more: Any) -> KubernetesCluster:
        ending = PodApi(api_client(self._extra), self._namespace)
        origin = {"conn_id": self.conn_id or ""}
        return KubernetesCluster(self._api, ending, killed=killed, origin=origin, **more)

    @cached_property
    def _api(self) -> PodApi:
        return PodApi(api_client(self._extra), self._namespace)

    @cached_property
    def _extra(self) -> Mapping[str, Any]:
        return BaseHook.get_connection(self.conn_id).extra_dejson if self.conn_id else {}

    @property
    def _namespace(self) -> str:
        return self.namespace or self._extra.get("namespace") or "default"

    def _kubeconfig(self, folder: Path) -> dict[str, str]:
        """Give ``spark-submit`` the connection's account, by a variable of its environment."""
        path, content = self._extra.get("kube_config_path"), self._extra.get("kube_config")
        if content:
            text = content if isinstance(content, str) else json.dumps(content)
            path = str(write_privately(folder / "kubeconfig", text.encode()))
        return {"KUBECONFIG": path} if path else {}


def kubernetes_drivers(task: Any, spark: Any) -> KubernetesDrivers | None:
    """Return what runs a task's drivers if they are to run in pods.

    :param spark: Spark's hook, which has read the connection.
    """
    given = spark._connection
    if not str(given["master"]).startswith(_MASTER) or given["deploy_mode"] != "cluster":
        return None
    conn_id = BaseHook.get_connection(task._conn_id).extra_dejson.get(_CONNECTION)
    return KubernetesDrivers(conn_id, given["namespace"])


def kubernetes_follower(handle: Handle, killed: Flag) -> KubernetesCluster:
    """Return a submitter that follows a pod of another process."""
    facts = handle.facts
    return KubernetesDrivers(facts["conn_id"] or None, facts["namespace"]).follower(killed)


def api_client(extra: Mapping[str, Any]) -> Any:
    """Return a client of the cluster that a connection of type ``kubernetes`` names.

    Unlike Airflow's own hook it changes no configuration of the process, in which a triggerer may
    follow the drivers of several clusters.

    :param extra: of the connection; empty for the pod of this process, else for its kubeconfig.
    :raises ConfigurationError: if there is no cluster, or the client is not installed.
    """
    try:
        from kubernetes import client, config
    except ImportError as error:
        raise ConfigurationError(
            "conn_id",
            "it is a connection of Kubernetes, whose client is not installed",
            remedy=f"{install_extra('kubernetes')} on the workers and triggerers",
        ) from error
    given, content = client.Configuration(), extra.get("kube_config")
    context = extra.get("cluster_context") or None
    try:
        if extra.get("in_cluster"):
            config.load_incluster_config(client_configuration=given)
        elif content:
            content = json.loads(content) if isinstance(content, str) else content
            config.load_kube_config_from_dict(content, context, given)
        elif extra.get("kube_config_path") or not _is_in_cluster():
            config.load_kube_config(extra.get("kube_config_path") or None, context, given)
        else:
            config.load_incluster_config(client_configuration=given)
    except (config.ConfigException, OSError, ValueError) as error:
        raise ConfigurationError(
            _CONNECTION,
            f"it names no cluster: {error}",
            remedy="correct the connection, or set KUBECONFIG on the workers and triggerers",
        ) from error
    given.retries = 0  # each try would wait for as long again; callers ask again
    if extra.get("disable_verify_ssl"):
        given.verify_ssl = False
    return client.ApiClient(given)


def _is_in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ
