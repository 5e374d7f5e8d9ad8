"""Record what a real API server shows of drivers' pods, for the follower's unit tests.

Run inside the one-node cluster, by ``tests.k8s``. Each file of ``tests/golden/kubernetes``
has the states of one pod, in order, as a watch has shown them; ``schema.json`` has the server's own
schema of what the submitter sends.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from pathlib import Path

from airflow_occ_provider.errors import SubmitterUnreachableError
from airflow_occ_provider.submitters.kubernetes_place import Pod
from tests.k8s.pod_script import api, script_pod
from tests.k8s.spark import NAMESPACE, kubectl, prepare_namespace
from tests.support.observed import until
from tests.support.suspended import suspended

FOLDER = Path(__file__).parent / "kubernetes"
WAITS = "echo begun; sleep 600"
SENT = (
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.api.core.v1.Pod",
)
NOISE = ("managedFields", "selfLink")
UNSAID = ("description", "format")


class Recorded:
    """A driver's pod, and the events of its states."""

    def __init__(self, key, script=WAITS, container=None):
        self.events, self.api = [], api()
        self.place, self.handle = script_pod(script, key, container)
        threading.Thread(target=self._watch, args=(self.pod,), daemon=True).start()

    def _watch(self, pod):
        query = {"watch": "true", "fieldSelector": f"metadata.name={pod.name}", "timeoutSeconds": 600}

        def take(lines):
            for line in lines:
                event = json.loads(line)
                for name in NOISE:
                    event["object"]["metadata"].pop(name, None)
                self.events.append(event)
                if event["type"] == "DELETED":
                    return

        try:
            self.api._call("GET", "pods", query, take=take)
        except SubmitterUnreachableError as error:
            print("the watch has ended:", error)

    @property
    def pod(self):
        return self.api.pod(self.handle.facts["pod"])

    def has(self, wanted):
        until(lambda: any(map(wanted, self.events)), wanted)
        return self

    def begins(self):
        return self.has(lambda one: "running" in Pod(one["object"])._state)

    def ends(self):
        return self.has(lambda one: "terminated" in Pod(one["object"])._state)

    def goes(self):
        return self.has(lambda one: one["type"] == "DELETED")


def succeeds():
    return Recorded("succeeds", "echo one; echo two").ends()


def fails():
    return Recorded("fails", "exit 78").ends()


def is_ended_by_us():
    one = Recorded("ended").begins()
    one.place.kill(one.handle)
    return one.ends()


def is_deleted():
    one = Recorded("deleted").begins()
    one.api.delete(one.pod)
    return one.goes()


def is_deleted_by_force():
    one = Recorded("forced").begins()
    one.api._call("DELETE", f"pods/{one.pod.name}", body={"gracePeriodSeconds": 0})
    return one.goes()


def runs_out_of_memory():
    limited = {"resources": {"limits": {"memory": "32Mi"}}}
    return Recorded("memory", "exec perl -e '$x = q(x) x (200 << 20)'", limited).ends()


def is_evicted():
    one = Recorded("evicted", "dd if=/dev/zero of=/small/x bs=1M count=5; sleep 600")
    return one.has(lambda event: event["object"]["status"].get("reason") == "Evicted").ends()


def has_no_image():
    one = Recorded("image", container={"image": "docker.io/airflow-occ/none:1"})
    one.has(lambda event: "ErrImageNeverPull" in json.dumps(event))
    one.place.kill(one.handle)
    return one.has(lambda event: event["object"]["status"]["phase"] == "Failed")


def waits_for_a_volume():
    mounts = [{"name": "none", "mountPath": "/none"}]
    one = Recorded("volume", container={"volumeMounts": mounts})
    until(lambda: one.pod.node, "the node")
    one.api.delete(one.pod)
    return one.goes()


def is_never_scheduled():
    one = Recorded("unscheduled", container={"resources": {"requests": {"cpu": "1000"}}})
    one.has(lambda event: "Unschedulable" in json.dumps(event))
    one.place.kill(one.handle)
    return one.goes()


def loses_its_node():
    """The kubelet is frozen, and the pod is deleted, as the cluster does after five minutes."""
    one = Recorded("node").begins()
    pid = int((Path(os.environ["KUBECONFIG"]).parent / "kubelet.pid").read_text())
    with suspended(pid):
        one.api.delete(one.pod)
        one.has(lambda event: event["object"]["metadata"].get("deletionTimestamp"))
        events = list(one.events)
    one.goes()
    one.events = events
    return one


SCENARIOS = (
    *(succeeds, fails, is_ended_by_us, is_deleted, is_deleted_by_force, runs_out_of_memory, is_evicted),
    *(has_no_image, waits_for_a_volume, is_never_scheduled, loses_its_node),
)


def schema():
    """Return the server's definitions of what is sent, with all that they refer to."""
    every = json.loads(kubectl("get", "--raw", "/openapi/v2"))["definitions"]
    found, left = {}, list(SENT)
    while left:
        name = left.pop()
        if name in found:
            continue
        found[name] = _plain(every[name])
        text = json.dumps(found[name])
        left += [part.split('"')[0] for part in text.split("#/definitions/")[1:]]
    return {"definitions": found}


def _plain(one):
    if isinstance(one, list):
        return [_plain(part) for part in one]
    if not isinstance(one, dict):
        return one
    kept = {
        key: _plain(value)
        for key, value in one.items()
        if not (key in UNSAID and isinstance(value, str))
    }
    kept = {key: value for key, value in kept.items() if not key.startswith("x-kubernetes")}
    if "properties" in kept:
        kept["additionalProperties"] = False
    return kept


def main():
    prepare_namespace()
    until(
        lambda: kubectl("-n", NAMESPACE, "get", "serviceaccount", "default", check=False), "the account"
    )
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "schema.json").write_text(json.dumps(schema(), indent=1, sort_keys=True) + "\n")
    for scenario in SCENARIOS:
        started = time.monotonic()
        one = scenario()
        proofs = [type(Pod(event["object"]).proof(time.time())).__name__ for event in one.events]
        print(f"{scenario.__name__}: {time.monotonic() - started:.0f} s: {proofs}", flush=True)
        lines = (json.dumps(event, sort_keys=True) + "\n" for event in one.events)
        (FOLDER / f"{scenario.__name__}.jsonl").write_text("".join(lines))
        for pod in api().drivers("airflow-occ-identity"):
            api().delete(pod)


if __name__ == "__main__":
    main()
