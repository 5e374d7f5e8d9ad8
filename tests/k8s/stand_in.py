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

def say(**fact):
    print("airflow_occ_provider: " + json.dumps(fact), flush=True)

given = json.load(open("/etc/airflow-occ/payload.json"))
assert open("/etc/airflow-occ/run_job.py").read()
say(fact="protected", options=len(given["options"]), followed=True)
if given["application"].endswith("clean.py"):
    say(fact="end", exit_code=0)
    sys.exit()
table, name, seconds = given["arguments"]
time.sleep(float(seconds))
timeline = table + "/.hoodie/timeline/"
instant = datetime.datetime.now().strftime("%Y%m%d%H%M%S%f")[:17]
message = "Creating a new instant [==>" + instant + "__commit__REQUESTED]"
say(fact="hudi", logger="ActiveTimelineV2", message=message)
for state in (".commit.requested", ".inflight"):
    open(timeline + instant + state, "x").close()
open(table + "/.hoodie/.heartbeat/" + instant, "x").close()
say(fact="hudi", logger="TransactionUtils", message="Successfully resolved conflicts, if any")
completed = datetime.datetime.now().strftime("%Y%m%d%H%M%S%f")[:17]
new = table + "/" + instant + ".new"
open(new, "xb").write(base64.b64decode(os.environ["COMMIT"]))
os.rename(new, timeline + instant + "_" + completed + ".commit")
os.remove(table + "/.hoodie/.heartbeat/" + instant)
say(fact="end", exit_code=0)
"""


def main(words):
    conf, folder = conf_of(words), os.environ["RIG_FOLDER"]
    template = pathlib.Path(folder, "commit").read_bytes()
    content = template.replace(PLACE.encode(), os.environ["AIRFLOW_OCC_IDENTITY"][: len(PLACE)].encode())
    pod = driver(conf, {"command": ["python3", "-c", PROGRAM]})
    (container,) = pod["spec"]["containers"]
    container["env"].append({"name": "COMMIT", "value": base64.b64encode(content).decode()})
    container["volumeMounts"].append({"name": "rig", "mountPath": folder})
    pod["spec"]["volumes"].append({"name": "rig", "hostPath": {"path": folder}})
    create(pod, conf["spark.kubernetes.namespace"])
    print("created", pod["metadata"]["name"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
