"""Spark on the one-node cluster: what ``spark-submit`` and the pods are given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from airflow_occ_provider.embedded.bundle import find_bundle, pyspark_home
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from tests.k8s.cluster.build import SPARK, home
from tests.k8s.cluster.node import ADDRESS, API

NAMESPACE = "spark"
ACCOUNT = "spark"
CONTAINERS = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
CONNECTION = {
    "conn_type": "spark",
    "host": f"k8s://https://{ADDRESS}",
    "port": 6443,
    "extra": {"deploy-mode": "cluster", "namespace": NAMESPACE},
}


def kubectl(*words, check=True, **more):
    """Run kubectl; return what it prints."""
    done = subprocess.run(
        [str(home() / "hyperkube"), "kubectl", *words],
        capture_output=True,
        text=True,
        check=False,
        **more,
    )
    assert not check or done.returncode == 0, done.stderr
    return done.stdout


def prepare_namespace():
    """Create the namespace and the drivers' account, if they are missing."""
    kubectl("create", "namespace", NAMESPACE, check=False)
    kubectl("-n", NAMESPACE, "create", "serviceaccount", ACCOUNT, check=False)
    rights = ("--clusterrole=edit", f"--serviceaccount={NAMESPACE}:{ACCOUNT}")
    kubectl("create", "clusterrolebinding", "spark", *rights, check=False)


def environment(folder, *shared, **conf):
    """Return an environment in which ``spark-submit`` runs Hudi's jobs on the cluster.

    :param folder: folder of Spark's configuration.
    :param shared: folders that the pods share with this machine.
    :param conf: further properties, with ``__`` for each dot.
    """
    folder.mkdir(parents=True, exist_ok=True)
    java, spark = find_java_home(), pyspark_home()
    seen = [Path("/usr"), Path(sys.prefix), Path(sys.base_prefix), java, spark, find_bundle().parent]
    seen += Path("/etc").glob("java-*")  # where Debian's Java has its settings
    lines = {
        "spark.jars": f"local://{find_bundle()}",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kubernetes.authenticate.driver.serviceAccountName": ACCOUNT,
        "spark.kubernetes.driver.master": API,  # there is no kube-proxy
        "spark.kubernetes.container.image": SPARK,
        "spark.kubernetes.container.image.pullPolicy": "Never",
        "spark.kubernetes.driver.request.cores": "100m",
        "spark.kubernetes.executor.request.cores": "100m",
        "spark.driver.memory": "700m",
        "spark.executor.memory": "600m",
        "spark.executor.instances": "1",
        "spark.driver.extraJavaOptions": " ".join(SHORT_LIVED),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        **{name.replace("__", "."): value for name, value in conf.items()},
    }
    for role in CONTAINERS:
        template = folder / f"{role}.json"
        template.write_text(
            json.dumps(_template(role, seen, shared, {"JAVA_HOME": java, "SPARK_HOME": spark}))
        )
        lines[f"spark.kubernetes.{role}.podTemplateFile"] = str(template)
    defaults = "".join(f"{key} {value}\n" for key, value in lines.items())
    (folder / "spark-defaults.conf").write_text(defaults)
    return {
        **os.environ,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(spark),
        "SPARK_CONF_DIR": str(folder),
        "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED),
        "SPARK_LOCAL_IP": ADDRESS,
        "PYSPARK_PYTHON": sys.executable,
        "PATH": os.pathsep.join([str(spark / "bin"), str(java / "bin"), os.environ["PATH"]]),
    }


def _template(role, seen, shared, variables):
    """Return a pod in which this machine's Python, Java and Spark are visible."""
    folders = [*((one, True) for one in dict.fromkeys(seen)), *((Path(one), False) for one in shared)]
    names = {path: f"host-{number}" for number, (path, _) in enumerate(folders)}
    given = {**variables, "PYSPARK_PYTHON": sys.executable}
    container = {
        "name": CONTAINERS[role],
        "env": [{"name": name, "value": str(value)} for name, value in given.items()],
        "volumeMounts": [
            {"name": names[path], "mountPath": str(path), "readOnly": is_fixed}
            for path, is_fixed in folders
        ],
    }
    volumes = [{"name": name, "hostPath": {"path": str(path)}} for path, name in names.items()]
    spec = {"terminationGracePeriodSeconds": 5, "containers": [container], "volumes": volumes}
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}
