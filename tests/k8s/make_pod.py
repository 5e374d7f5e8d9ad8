"""Make a driver's pod as Spark would, without Spark: in place of ``spark-submit``, so with few imports.

Run as ``make_pod.py [SPARK-SUBMIT'S ARGUMENTS]``. Of the arguments it reads ``--conf``; the variable
``CONTAINER`` has further fields of the container as JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import ssl
import sys
import urllib.request

IMAGE = "docker.io/airflow-occ/spark:1"
LABEL, SECRET = "spark.kubernetes.driver.label.", "spark.kubernetes.driver.secrets."
VOLUMES = [
    {"name": "usr", "hostPath": {"path": "/usr"}},
    {"name": "small", "emptyDir": {"sizeLimit": "1Mi"}},  # a pod that writes more is evicted
]


def driver(conf, more):
    """Return the pod.

    :param more: further fields of its container.
    """
    labels = {one.removeprefix(LABEL): value for one, value in conf.items() if one.startswith(LABEL)}
    mounts = {one.removeprefix(SECRET): path for one, path in conf.items() if one.startswith(SECRET)}
    container = {
        "name": "spark-kubernetes-driver",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "env": [{"name": "SPARK_DRIVER_BIND_ADDRESS", "value": "pod"}],
        "volumeMounts": [
            {"name": "usr", "mountPath": "/usr", "readOnly": True},
            {"name": "small", "mountPath": "/small"},
            *({"name": name, "mountPath": path} for name, path in mounts.items()),
        ],
        **more,
    }
    volumes = [*VOLUMES, *({"name": name, "secret": {"secretName": name}} for name in mounts)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"script-{secrets.token_hex(4)}-driver",
            "labels": {**labels, "spark-role": "driver"},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "containers": [container],
            "volumes": volumes,
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
    return dict(one.split("=", 1) for one in given)


if __name__ == "__main__":
    conf = conf_of(sys.argv)
    create(driver(conf, json.loads(os.environ["CONTAINER"])), conf["spark.kubernetes.namespace"])
