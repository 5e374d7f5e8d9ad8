"""Drivers in pods of the cluster that a Spark connection names."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook

from airflow_occ_provider.attempts.submission import write_privately
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.errors import ConfigurationError, install_extra
from airflow_occ_provider.places.of_task import Launch, PlacedTask
from airflow_occ_provider.storage.attempt_folder import identity_of
from airflow_occ_provider.submitters.kubernetes_place import KubernetesPlace, PodApi

_CONNECTION = "kubernetes_conn_id"
_CONTEXT = "spark.kubernetes.context"
_NAME = "spark.app.name"


def place_of_task(task: PlacedTask, launch: Launch | None) -> KubernetesPlace:
    """Return the pods of the cluster that a task's connection names.

    The cluster is that of a connection of type ``kubernetes``, with the account; without one that of
    the pod in which this process runs, else of its kubeconfig.
    """
    conn_id = BaseHook.get_connection(task.conn_id).extra_dejson.get(_CONNECTION) or ""
    extra = _extra_of(conn_id)
    namespace = task.spark._connection["namespace"] or extra.get("namespace") or "default"
    api = PodApi(api_client(extra), namespace)
    if launch is None:
        return KubernetesPlace(api, conn_id)
    submission, spark = launch.submission, launch.spark
    context = extra.get("cluster_context")
    spark._connection = {**spark._connection, "namespace": None}  # it is in the configuration
    properties = {**({_CONTEXT: context} if context else {}), **launch.conf}
    kubeconfig = _kubeconfig(extra, Path(submission.folder))
    in_pod = replace(
        submission,
        application=of_pod(submission.application),
        environment={**submission.environment, **kubeconfig},
    )
    return KubernetesPlace(
        api,
        conn_id,
        replace(launch, submission=in_pod),
        identity=identity_of(submission.files.url),
        application=str(spark._name or properties.get(_NAME) or ""),
        properties=properties,
    )


def place_of_handle(handle: Handle) -> KubernetesPlace:
    """Return where a driver of another process runs."""
    conn_id, namespace = handle.facts["conn_id"], handle.facts["namespace"]
    return KubernetesPlace(PodApi(api_client(_extra_of(conn_id)), namespace), conn_id)


def _extra_of(conn_id: str) -> Mapping[str, Any]:
    return BaseHook.get_connection(conn_id).extra_dejson if conn_id else {}


def _kubeconfig(extra: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the variable by which ``spark-submit`` has the connection's account.

    :param folder: that only this account reads.
    """
    path, content = extra.get("kube_config_path"), extra.get("kube_config")
    if content:
        text = content if isinstance(content, str) else json.dumps(content)
        path = str(write_privately(folder / "kubeconfig", text.encode()))
    return {"KUBECONFIG": path} if path else {}


def of_pod(application: str) -> str:
    """Return the URL by which a driver in a pod reads the runner's file.

    The pod sees a folder of this host under the same path. Spark would upload the file, and needs a
    place for that.
    """
    scheme, _, path = application.partition(":")
    return f"local:{path}" if scheme == "file" else application


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
    settings, content = client.Configuration(), extra.get("kube_config")
    context = extra.get("cluster_context") or None
    try:
        if extra.get("in_cluster"):
            config.load_incluster_config(client_configuration=settings)
        elif content:
            content = json.loads(content) if isinstance(content, str) else content
            config.load_kube_config_from_dict(content, context, settings)
        elif extra.get("kube_config_path") or not _is_in_cluster():
            config.load_kube_config(extra.get("kube_config_path") or None, context, settings)
        else:
            config.load_incluster_config(client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        raise ConfigurationError(
            _CONNECTION,
            f"it names no cluster: {error}",
            remedy="correct the connection, or set KUBECONFIG on the workers and triggerers",
        ) from error
    settings.retries = 0  # each try would wait for as long again; callers ask again
    if extra.get("disable_verify_ssl"):
        settings.verify_ssl = False
    return client.ApiClient(settings)


def _is_in_cluster() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ
