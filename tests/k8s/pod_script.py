"""A shell script as a driver's pod, which starts at once and without Spark."""

from __future__ import annotations

import json
import sys

from airflow_occ_provider.hooks.kubernetes import api_client
from airflow_occ_provider.submitters.kubernetes.api import PodApi
from airflow_occ_provider.submitters.kubernetes.cluster import KubernetesCluster
from tests.k8s import make_pod

NAMESPACE = "spark"


def api(namespace=NAMESPACE):
    """Return the API of the cluster that KUBECONFIG names."""
    return PodApi(api_client({}), namespace)


def script_cluster(script, container=None, **more):
    """Return a submitter whose driver is a shell script.

    :param container: further fields of its container.
    """

    def command(conf):
        assert conf["spark.kubernetes.submission.waitAppCompletion"] == "false"
        given = json.dumps({"command": ["sh", "-c", script], **(container or {})})
        words = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        return ["env", f"CONTAINER={given}", sys.executable, "-S", make_pod.__file__, *words]

    given = {"content": {"input": b"x"}, "poll_s": 0.2, "end_s": 60.0}
    return KubernetesCluster(api(), api(), command, **{**given, **more})
