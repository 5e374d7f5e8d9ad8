"""Shell scripts in drivers' pods, which start at once and without Spark."""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import sys
from pathlib import Path

from airflow_occ_provider.attempts.site import NO_LIMIT
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Handle
from airflow_occ_provider.places.kubernetes import api_client
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.kubernetes_place import KubernetesPlace, PodApi, pod_name
from tests.contract import folder_job
from tests.k8s import make_pod

NAMESPACE = "spark"
ROOT = Path(__file__).parents[2]


def api(namespace=NAMESPACE):
    """Return the API of the cluster that KUBECONFIG names."""
    return PodApi(api_client({}), namespace)


def has_begun(pod):
    """Whether the driver's container was started."""
    return not {"running", "terminated"}.isdisjoint(pod._state)


def follower():
    """Return a place that has started nothing."""
    return KubernetesPlace(api())


class Launched:
    """A command that makes a driver's pod.

    :param command: of its container.
    :param container: further fields of that.
    :param shared: paths of folders that the pod shares with this machine.
    """

    environment, start_limit = os.environ, NO_LIMIT

    def __init__(self, command, container=None, shared=()):
        self._container = {"command": list(command), **(container or {})}
        self._shared = [str(path) for path in shared]

    def command(self, conf):
        assert conf["spark.kubernetes.submission.waitAppCompletion"] == "false"
        variables = {"CONTAINER": self._container, "SHARED": self._shared}
        settings = [f"{name}={json.dumps(value)}" for name, value in variables.items()]
        words = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        return ["env", *settings, sys.executable, "-S", make_pod.__file__, *words]


def script_pod(script, key, container=None):
    """Start a pod that runs a script, and no driver.

    :return: its place, and the handle that its driver would have.
    """
    launched, folder = Launched(["sh", "-c", script], container), f"/none/{secrets.token_hex(4)}"
    place = KubernetesPlace(api(), launch=launched, identity=key, application=key)
    subprocess.run(launched.command(place.conf(folder)), check=True)
    facts = {"conn_id": "", "namespace": NAMESPACE, "pod": pod_name(key, folder)}
    return place, Handle(place.name, f"pod of {key}", facts)


def script_driver(script, key, parent, container=None):
    """Return a submitter whose driver follows the contract of its folder, and runs a script.

    :param parent: folder of this machine in which the driver's is.
    """
    folder = AttemptFolder(f"{parent}/{key}/{secrets.token_hex(4)}")
    folder.write("run_job.py", Path(folder_job.__file__).read_bytes())
    # The first process of a container ignores the SIGKILL by which the job ends itself.
    job = [sys.executable, f"{folder.url}/run_job.py", folder.url, script]
    command = ["sh", "-c", f"{shlex.join(job)}; exit $?"]
    variables = {"env": [{"name": "PYTHONPATH", "value": str(ROOT)}]}
    launched = Launched(command, {**variables, **(container or {})}, [parent, *_python()])
    place = KubernetesPlace(api(), launch=launched, identity=key, application=key)
    return FolderDriver(AttemptFolder, place, Submission("run_job.py", folder, b"{}"))


def _python():
    """Return the folders of Python and of this project, as far as a pod does not see them anyway."""
    folders = []
    for path in (ROOT, Path(sys.prefix), Path(sys.base_prefix)):
        if not any(path.is_relative_to(seen) for seen in (Path("/usr"), *folders)):
            folders.append(path)
    return folders
