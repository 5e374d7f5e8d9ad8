"""A stand-in for ``spark-submit`` and for Spark: a pod that commits to a table in the form of Hudi.

It is for rigs of what surrounds a driver: operator, submitter and cluster are real.
"""

from __future__ import annotations

import base64
import os
import pathlib
import sys

from tests.k8s.make_pod import conf_of, create, driver

PLACE = "identity-of-the-task-run-as-long-as-one"[:36]
"""Stands for the identity in the file ``commit`` of the rig's folder."""

PROGRAM = """
import base64, datetime, json, os, sys, time
from airflow_occ_provider.in_driver.run_job import report
from tests.contract.folder_job import follow

def work(content):
    payload = json.loads(content)
    report("protected", options=len(payload["options"]), followed=True)
    if payload["application"].endswith("clean.py"):
        return 0
    table, name, seconds = payload["arguments"]
    time.sleep(float(seconds))
    timeline = table + "/.hoodie/timeline/"
    instant = datetime.datetime.now().strftime("%Y%m%d%H%M%S%f")[:17]
    message = "Creating a new instant [==>" + instant + "__commit__REQUESTED]"
    report("hudi", logger="ActiveTimelineV2", message=message)
    for state in (".commit.requested", ".inflight"):
        open(timeline + instant + state, "x").close()
    open(table + "/.hoodie/.heartbeat/" + instant, "x").close()
    report("hudi", logger="TransactionUtils", message="Successfully resolved conflicts, if any")
    completed = datetime.datetime.now().strftime("%Y%m%d%H%M%S%f")[:17]
    new = table + "/" + instant + ".new"
    open(new, "xb").write(base64.b64decode(os.environ["COMMIT"]))
    os.rename(new, timeline + instant + "_" + completed + ".commit")
    os.remove(table + "/.hoodie/.heartbeat/" + instant)
    return 0

sys.exit(follow(sys.argv[1], work))
"""
ROOT = str(pathlib.Path(__file__).parents[2])


def main(words):
    conf, shared = conf_of(words), os.environ["RIG_FOLDER"]
    folder = words[-1].removeprefix("file://")
    identity = pathlib.Path(folder).parent.name
    content = pathlib.Path(shared, "commit").read_bytes()
    content = content.replace(PLACE.encode(), identity[: len(PLACE)].encode())
    # The first process of a container ignores the SIGKILL by which the driver ends itself.
    command = ["sh", "-c", 'python3 -c "$PROGRAM" "$FOLDER"; exit $?']
    pod = driver(conf, {"command": command}, [shared, ROOT])
    (container,) = pod["spec"]["containers"]
    variables = {
        "COMMIT": base64.b64encode(content).decode(),
        "PROGRAM": PROGRAM,
        "FOLDER": folder,
        "PYTHONPATH": ROOT,
    }
    container["env"] += [{"name": name, "value": value} for name, value in variables.items()]
    create(pod, conf["spark.kubernetes.namespace"])
    print("created", pod["metadata"]["name"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
