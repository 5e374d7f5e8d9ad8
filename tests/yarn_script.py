"""A shell script as an application of YARN: a driver that starts at once, without Spark.

Run as ``yarn_script.py RESOURCE_MANAGER SCRIPT_FILE TAGS``, in place of ``spark-submit``.
"""

from __future__ import annotations

import json
import sys
import urllib.request

from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.resource_manager import ResourceManager

TIMEOUT_S = 60


def script_cluster(yarn, script, **more):
    """Return a submitter of an embedded YARN that runs a script file."""

    def command(conf):
        assert conf["spark.yarn.maxAppAttempts"] == "1"
        place = (yarn.resource_manager, str(script), conf["spark.yarn.tags"])
        return [sys.executable, "-m", "tests.yarn_script", *place]

    return YarnCluster(
        ResourceManager([yarn.resource_manager]),
        command,
        open_log=lambda path: (yarn.aggregated_logs / path).open("rb"),
        **{"end_s": 60.0, **more},
    )


def call(manager, path, body):
    request = urllib.request.Request(  # noqa: S310
        f"{manager}/ws/v1/cluster/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return answer.read()


def main(manager, script, tags):
    name = json.loads(call(manager, "apps/new-application", {}))["application-id"]
    command = f"sh {script} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"
    application = {
        "application-id": name,
        "application-name": "script",
        "am-container-spec": {"commands": {"command": command}},
        "max-app-attempts": 1,
        "resource": {"memory": 128, "vCores": 1},
        "application-tags": {"tag": tags.split(",")},
    }
    call(manager, "apps", application)


if __name__ == "__main__":
    main(*sys.argv[1:])
