"""A shell script as a driver in YARN, which starts at once and without Spark.

Run as ``yarn_script.py RESOURCE_MANAGER TAGS MOST_ATTEMPTS ARGUMENT ...``, in place of
``spark-submit``: the arguments are those of Python in the container.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import urllib.request
from pathlib import Path

from airflow_occ_provider.attempts.site import NO_LIMIT
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.yarn_place import ResourceManager, YarnPlace
from tests.contract import folder_job

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60


class ScriptLaunch:
    """A submission of a script that follows its folder.

    :param folder: path of the attempt's folder.
    """

    environment = os.environ
    start_limit = NO_LIMIT

    def __init__(self, yarn, folder, script):
        self._manager, self._arguments = yarn.resource_manager, (f"{folder}/run_job.py", folder, script)

    def command(self, conf):
        place = (self._manager, conf["spark.yarn.tags"], conf["spark.yarn.maxAppAttempts"])
        return [sys.executable, "-m", "tests.support.yarn_script", *place, *self._arguments]


def script_driver(yarn, folder, script, settings=None, runner=None):
    """Return what starts, follows and ends a script in an embedded YARN.

    :param folder: path of the attempt's folder.
    :param settings: of Spark.
    :param runner: what Python runs instead of a driver that follows the folder and runs the script.
    """
    attempt, manager = AttemptFolder(str(folder)), ResourceManager([yarn.resource_manager])
    attempt.write("run_job.py", (runner or Path(folder_job.__file__).read_text()).encode())
    file = Path(f"{folder}.sh")  # YARN puts a command into quotes, where its shell expands it
    file.write_text(script)
    place = YarnPlace(manager, ScriptLaunch(yarn, str(folder), f"exec sh {file}"), settings)
    return FolderDriver(AttemptFolder, place, Submission(f"{attempt.url}/run_job.py", attempt, b"{}"))


def call(manager, path, body):
    request = urllib.request.Request(  # noqa: S310
        f"{manager}/ws/v1/cluster/{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
        return answer.read()


def main(manager, tags, attempts, *arguments):
    name = json.loads(call(manager, "apps/new-application", {}))["application-id"]
    driver = shlex.join(["env", f"PYTHONPATH={ROOT}", sys.executable, *arguments])
    application = {
        "application-id": name,
        "application-name": "script",
        "am-container-spec": {
            "commands": {"command": f"{driver} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"}
        },
        "max-app-attempts": int(attempts),
        "resource": {"memory": 128, "vCores": 1},
        "application-tags": {"tag": tags.split(",")},
    }
    call(manager, "apps", application)
    print(f"Submitted application {name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
