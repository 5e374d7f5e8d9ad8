"""Make a driver's pod as Spark would, without Spark: in place of ``spark-submit``, so with few imports.

Run as ``make_pod.py [SPARK-SUBMIT'S ARGUMENTS]``. Of the arguments it reads ``--conf``; the variable
``CONTAINER`` has further fields of the container as JSON, and ``SHARED`` the paths of this machine's
folders that the pod shares.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.request

IMAGE = "docker.io/airflow-occ/spark:1"
LABEL, NAME = "spark.kubernetes.driver.label.", "spark.kubernetes.driver.pod.name"
VOLUMES = [
    {"name": "usr", "hostPath": {"path": "/usr"}},
    {"name": "small", "emptyDir": {"sizeLimit": "1Mi"}},  # a pod that writes more is evicted
    {"name": "none", "secret": {"secretName": "none"}},  # a pod that mounts it never starts
]


def driver(conf, more, shared=()):
    """Return the pod.

    :param more: further fields of its container.
    :param shared: folders of this machine that it shares.
    """
    labels = {key.removeprefix(LABEL): value for key, value in conf.items() if key.startswith(LABEL)}
    folders = {f"shared-{number}": path for number, path in enumerate(shared)}
    container = {
        "name": "spark-kubernetes-driver",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "env": [{"name": "SPARK_DRIVER_BIND_ADDRESS", "value": "pod"}],
        "volumeMounts": [
            {"name": "usr", "mountPath": "/usr", "readOnly": True},
            {"name": "small", "mountPath": "/small"},
            *({"name": name, "mountPath": path} for name, path in folders.items()),
        ],
        **more,
    }
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": conf[NAME], "labels": {**labels, "spark-role": "driver"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": [container],
            "volumes": [*VOLUMES, *volumes],
        },
    }


def create(pod, namespace):
    """Create the pod in the tests' own cluster, whose kubeconfig is JSON."""
    with open(os.environ["KUBECONFIG"], encoding="utf-8") as file:  # noqa: PTH123
        given = json.load(file)
    cluster, user = given["clusters"][0]["cluster"], given["users"][0]["user"]
    request = urllib.request.Request(  # noqa: S310
        f"{cluster['server']}/api/v1/namespaces/{namespace}/pods",
        json.dumps(pod).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {user['token']}"},
    )
    trusted = ssl.create_default_context(cafile=cluster["certificate-authority"])
    urllib.request.urlopen(request, context=trusted, timeout=60).close()  # noqa: S310


def conf_of(words):
    """Return Spark's configuration in a command."""
    given = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
    return dict(setting.split("=", 1) for setting in given)


if __name__ == "__main__":
    conf = conf_of(sys.argv)
    pod = driver(conf, json.loads(os.environ["CONTAINER"]), json.loads(os.environ["SHARED"]))
    create(pod, conf["spark.kubernetes.namespace"])
