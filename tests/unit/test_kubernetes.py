"""Pods of Kubernetes as a place, against what a real API server has shown, and its schema."""

from __future__ import annotations

import json
import os
import re
import time
from datetime import datetime
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from kubernetes.client import ApiException

from airflow_occ_provider.attempts.site import NO_LIMIT
from airflow_occ_provider.attempts.submission import Submission
from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import NotSubmittedError, SubmitterUnreachableError
from airflow_occ_provider.storage.attempt_folder import AttemptFolder
from airflow_occ_provider.submitters import cluster_place, folder_driver
from airflow_occ_provider.submitters.folder_driver import FolderDriver
from airflow_occ_provider.submitters.kubernetes_place import (
    KubernetesPlace,
    Pod,
    PodApi,
    identity_label,
    pod_name,
)
from tests.unit.folder_drivers import FolderDriverOfTest

RECORDED = Path(__file__).parents[1] / "golden" / "kubernetes"
SCHEMA = json.loads((RECORDED / "schema.json").read_text())
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
KEY = "0f0e4a5c-of-a-task-run"
FOLDER = f"s3a://lake/.airflow_occ/trips/{KEY}/0a1b2c3d"
LOG = b"".join(b"line %d\n" % number for number in range(40))


def events(name):
    return [json.loads(line) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


def pods(name):
    return [Pod(event["object"]) for event in events(name)]


def check(kind, manifest):
    """Check a manifest against the schema of Kubernetes 1.34; unknown fields are errors."""
    validator = Draft7Validator({**SCHEMA, "$ref": f"#/definitions/{kind}"})
    assert not [error.message for error in validator.iter_errors(given(manifest))]


def given(value):
    """A server shows a time that is not set as null."""
    if isinstance(value, list):
        return [given(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: given(one) for name, one in value.items() if one is not None}


# What a pod proves.

ENDS = ["succeeds", "fails", "is_ended_by_us", "runs_out_of_memory", "is_evicted"]
"""The pods that are there when their containers have ended."""
NEVER_RUN = ["has_no_image", "is_never_scheduled"]
SAID = {
    "fails": "exit code 78 (Error)",
    "is_ended_by_us": "exit code 137 (Error; the pod: DeadlineExceeded)",
    "runs_out_of_memory": "exit code 137 (OOMKilled)",
    "is_evicted": "; the pod: Evicted)",
    "has_no_image": "Failed (DeadlineExceeded",
    "is_never_scheduled": "Unschedulable",
}


@pytest.mark.parametrize("name", [*ENDS, "is_deleted", "waits_for_a_volume"])
def test_the_containers_status_alone_proves_an_end(name):
    proofs = [pod.proof(time.time()) for pod in pods(name)]
    assert proofs[0] == Running()
    assert proofs[-1] == Ended(None)
    ended = [isinstance(one, Ended) for one in proofs]
    assert ended == sorted(ended)


@pytest.mark.parametrize(("name", "said"), SAID.items())
def test_a_pod_says_for_people_what_it_waits_for_and_how_it_ended(name, said):
    assert any(said in pod.describe() for pod in pods(name))


def test_a_running_driver_needs_no_words():
    assert any("running" in pod._state and not pod.describe() for pod in pods("is_ended_by_us"))
    assert all(not pod.describe() for pod in pods("waits_for_a_volume") if pod.is_living)


def test_a_pod_that_was_deleted_by_force_proves_nothing():
    assert {type(pod.proof(time.time())) for pod in pods("is_deleted_by_force")} <= {Running, Unseen}


def test_a_deleted_pod_whose_node_is_silent_is_unseen_after_a_minute():
    last = pods("loses_its_node")[-1]
    deleted_s = datetime.fromisoformat(last.shown["metadata"]["deletionTimestamp"]).timestamp()
    assert last.proof(deleted_s + 59) == Running()
    state = last.proof(deleted_s + 61)
    assert isinstance(state, Unseen)
    assert "its node node does not prove that the driver has ended" in state.reason


def changed(name, number=-1, **status):
    pod = json.loads(json.dumps(pods(name)[number].shown))
    pod["status"].update(status)
    return Pod(pod)


COLLECTED = [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]


def test_a_pod_that_the_collector_marks_as_failed_is_no_proof():
    running = changed("loses_its_node", phase="Failed", conditions=COLLECTED)
    unstarted = changed("has_no_image", phase="Failed", conditions=COLLECTED)
    without = changed("loses_its_node", phase="Failed")
    for pod in (running, unstarted, without):
        assert isinstance(pod.proof(0), Unseen)


def test_a_pod_that_its_node_refuses_says_so():
    refused = changed("loses_its_node", phase="Failed", reason="OutOfcpu", containerStatuses=[])
    assert not refused.is_living
    assert "OutOfcpu" in refused.describe()


def test_the_drivers_container_is_found_among_others():
    pod = changed("succeeds")
    own = pod.shown["spec"]["containers"][0]
    beside = {"name": "istio-proxy", "env": [{"name": "A", "value": "b"}]}
    for containers, name in (
        ([beside, own], own["name"]),
        ([beside, {**own, "name": "mine"}], "mine"),
        ([beside, {"name": "spark-kubernetes-driver"}], "spark-kubernetes-driver"),
        ([{"name": "only"}], "only"),
    ):
        pod.shown["spec"]["containers"] = containers
        assert pod.container == name


# What is sent.


@pytest.mark.parametrize("name", [path.stem for path in sorted(RECORDED.glob("*.jsonl"))])
def test_the_recorded_pods_fit_the_schema(name):
    for event in events(name):
        check("io.k8s.api.core.v1.Pod", event["object"])


def test_sparks_configuration_has_the_pods_name_labels_and_namespace():
    theirs = {"a": 1, "spark.kubernetes.driver.pod.name": "the one of each try"}
    place = KubernetesPlace(PodApi(None, "n"), identity=KEY, application="p", properties=theirs)
    assert place.conf(FOLDER) == {
        "a": "1",
        "spark.kubernetes.namespace": "n",
        "spark.kubernetes.driver.pod.name": pod_name("p", FOLDER),
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.driver.label.airflow-occ-identity": KEY,
        "spark.kubernetes.executor.label.airflow-occ-identity": KEY,
    }


@pytest.mark.parametrize("key", [KEY, "k" * 64, "Ä key", "-a", "a-"])
def test_labels_are_those_that_kubernetes_allows(key):
    label = identity_label(key)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?", label)
    assert (label == key) == (key == KEY)


@pytest.mark.parametrize("application", ["", "--", "dag.write_trips.manual__2026-11-23", "Ä" + "x" * 99])
def test_a_pods_name_is_one_of_a_host_and_of_one_attempt(application):
    name = pod_name(application, FOLDER)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
    assert name == pod_name(application, FOLDER)
    assert name != pod_name(application, f"{FOLDER}0")


# The place, over a cluster that shows recorded states.


class Answer:
    def __init__(self, content):
        self.data = content if isinstance(content, bytes) else json.dumps(content).encode()

    def close(self):
        pass


class Configuration:
    host = "https://cluster.test"


class RecordedCluster:
    """An API server that shows the states of a recorded pod, one with each look."""

    configuration = Configuration()

    def __init__(self, name):
        self.events, self.calls = events(name), []
        self.at, self.broken, self.broken_log = 0, None, None

    def call_api(self, path, verb, *, query_params, body, header_params, _request_timeout, **_):
        assert max(_request_timeout) <= 15
        parts, query = path.removeprefix("/api/v1/namespaces/spark/").split("/"), dict(query_params)
        self.calls.append((verb, "/".join(parts), body))
        if self.broken:
            raise self.broken
        return getattr(self, f"{verb.lower()}_{parts[0]}")(parts[1:], query)

    @property
    def now(self):
        return self.events[min(self.at, len(self.events) - 1)]

    def get_pods(self, parts, query):
        if parts[1:] == ["log"]:
            if self.broken_log:
                raise self.broken_log
            assert query["container"] == "spark-kubernetes-driver"
            return Answer(b"".join(LOG.splitlines(True)[-int(query["tailLines"]) :]))
        event = self.now
        if not parts:
            is_run = query["labelSelector"] == f"airflow-occ-identity={KEY},spark-role=driver"
            is_shown = is_run and event["type"] != "DELETED"
            return Answer({"items": [event["object"]] if is_shown else []})
        self.at += 1
        if event["type"] == "DELETED":
            raise ApiException(404, "Not Found")
        return Answer(event["object"])

    def patch_pods(self, *_):
        return Answer({})

    delete_pods = patch_pods

    def changes(self):
        """What was sent, but for questions."""
        return [(verb, path, body) for verb, path, body in self.calls if verb != "GET"]


class Launched:
    """A command in place of ``spark-submit``."""

    environment, start_limit = os.environ, NO_LIMIT

    def __init__(self, command, then=lambda: None):
        self.words, self.then, self.conf = command, then, None

    def command(self, conf):
        self.conf = conf
        self.then()
        return self.words


def place_of(server, launched=None):
    return KubernetesPlace(PodApi(server, "spark"), launch=launched, identity=KEY, application="trips")


def handle_of(server):
    facts = {"conn_id": "", "namespace": "spark", "pod": Pod(server.events[0]["object"]).name}
    return Handle("kubernetes", "pod", facts)


@pytest.mark.parametrize("name", ENDS)
def test_a_recorded_driver_is_seen_to_its_end(name):
    server = RecordedCluster(name)
    place, handle = place_of(server), handle_of(server)
    states = [place.state(handle) for _ in server.events]
    assert states[0] == Running()
    assert states[-1] == Ended(None)
    lines = place.output(0)
    assert lines
    assert all(line.startswith("Pod spark/") and line.endswith("\n") for line in lines)
    assert len(lines) == len(set(lines))
    assert place.output(0) == []


@pytest.mark.parametrize("name", ["is_deleted", "is_deleted_by_force"])
def test_a_pod_that_is_gone_proves_nothing(name):
    server = RecordedCluster(name)
    place, handle = place_of(server), handle_of(server)
    assert place.state(handle) == Running()
    server.at = len(server.events) - 1
    assert isinstance(place.state(handle), Unseen)


def test_a_cluster_that_refuses_to_answer_says_nothing():
    server = RecordedCluster("succeeds")
    server.broken = ApiException(503, "Service Unavailable")
    with pytest.raises(SubmitterUnreachableError, match=r"answers GET pods/.* by 503"):
        place_of(server).state(handle_of(server))


def test_a_driver_is_ended_by_a_deadline_that_keeps_its_status_and_log():
    server = RecordedCluster("is_ended_by_us")
    server.at, place, handle = 2, place_of(server), handle_of(server)
    place.kill(handle)
    ((verb, path, body),) = server.changes()
    assert (verb, path) == ("PATCH", f"pods/{handle.facts['pod']}")
    assert body == {"spec": {"activeDeadlineSeconds": 1}}
    pod = server.events[2]["object"]
    check("io.k8s.api.core.v1.Pod", {**pod, "spec": {**pod["spec"], **body["spec"]}})
    with pytest.raises(AssertionError):
        check("io.k8s.api.core.v1.Pod", {**pod, "spec": {**pod["spec"], "deadline": 1}})


def test_a_pod_that_no_node_has_is_deleted_and_no_later_one_of_its_name():
    server = RecordedCluster("is_never_scheduled")
    place_of(server).kill(handle_of(server))
    ((verb, _, body),) = server.changes()
    assert verb == "DELETE"
    check(f"{META}.DeleteOptions", body)
    assert body["preconditions"] == {"uid": Pod(server.events[0]["object"]).uid}


def test_a_kill_is_quiet_if_the_cluster_is_away_or_the_pod_is_gone():
    server = RecordedCluster("is_deleted")
    server.at = len(server.events) - 1
    place_of(server).kill(handle_of(server))
    server.broken = ConnectionRefusedError()
    place_of(server).kill(handle_of(server))
    assert server.changes() == []


def test_the_pods_of_a_task_run_are_removed_by_its_label(caplog):
    server = RecordedCluster("succeeds")
    place_of(server).forget("another")
    assert server.changes() == []
    place_of(server).forget(KEY)
    assert [verb for verb, _, _ in server.changes()] == ["DELETE"]
    server.broken = ConnectionRefusedError()
    place_of(server).forget(KEY)
    assert "The pods of the task run stay: the cluster at https://cluster.test" in caplog.text


def test_a_failed_driver_leaves_how_its_pod_ended_and_the_end_of_its_log():
    server = RecordedCluster("runs_out_of_memory")
    server.at, place, handle = len(server.events) - 1, place_of(server), handle_of(server)
    first, second, *rest = place.last_lines(handle)
    assert "exit code 137 (OOMKilled)" in first
    assert "The last lines of the log" in second
    assert rest == [f"line {number}\n" for number in range(20, 40)]
    server.broken_log = ApiException(403, "Forbidden")
    assert place.last_lines(handle) == [first]
    server.broken = ConnectionRefusedError()
    assert place.last_lines(handle) == []


# A submission.


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_place, "_PERIOD_S", 0.0)
    monkeypatch.setattr(cluster_place, "_LOOK_S", 0.01)
    monkeypatch.setattr(folder_driver, "_GATE_S", 0.01)
    path = tmp_path / "attempt"
    path.mkdir()
    return path


def offering(folder, place):
    return FolderDriver(
        AttemptFolder, place, Submission("run_job.py", AttemptFolder(str(folder)), b"{}")
    )


def test_a_driver_of_a_pod_is_granted_by_its_folder_whatever_it_says(folder):
    server, driver = RecordedCluster("is_ended_by_us"), FolderDriverOfTest(folder, "n")
    server.events[2:] = server.events[2:3]  # it runs
    launched = Launched(["echo", "submitted"], driver.start)
    place, recorded = place_of(server, launched), []
    submitter = offering(folder, place)
    handle = submitter.submit(recorded.append)
    driver.join()
    assert driver.ran == b"{}"
    assert recorded == [handle]
    pod = launched.conf["spark.kubernetes.driver.pod.name"]
    assert pod == pod_name("trips", str(folder))
    assert handle.name == f"pod spark/{pod}"
    assert {"conn_id": "", "namespace": "spark", "pod": pod}.items() <= handle.facts.items()
    assert Handle.from_json(handle.to_json()) == handle
    deadline, lines = time.monotonic() + 30, []
    while len(lines) < 2:
        assert time.monotonic() < deadline
        lines += submitter.read(handle, 0.01)
    assert sorted(lines) == [f"The driver's log: kubectl -n spark logs -f {pod}\n", "submitted\n"]
    lies = {"pod": "another", "namespace": "kube-system", "host": "{}"}
    name, facts = place.identify(Hello("m", details=lies))
    assert (name, facts["pod"], facts["namespace"]) == (f"pod spark/{pod}", pod, "spark")


def test_a_pod_that_ends_before_its_driver_waits_is_an_error_with_the_end_of_its_log(folder, caplog):
    server = RecordedCluster("runs_out_of_memory")
    with pytest.raises(NotSubmittedError, match=r"exit code 137 \(OOMKilled\)\n.*\nline 20\n"):
        offering(folder, place_of(server, Launched(["true"]))).submit(lambda _: None)
    assert (folder / "revoked").exists()


@pytest.mark.parametrize("name", NEVER_RUN)
def test_what_a_pod_waits_for_is_shown_once_until_none_will_come(folder, name):
    server, lines = RecordedCluster(name), []
    submitter = offering(folder, place_of(server, Launched(["true"])))
    with pytest.raises(NotSubmittedError, match="no driver came"):
        submitter.submit(lambda _: None, lines.append)
    said = "Unschedulable" if name == "is_never_scheduled" else "ErrImageNeverPull"
    assert "".join(lines).count(said) == 1


def test_a_cluster_without_the_pod_is_another_one(folder):
    server = RecordedCluster("is_deleted")
    server.at = len(server.events) - 1
    with pytest.raises(NotSubmittedError, match=r"cluster.test.* has no pod trips-.*kubernetes_conn_id"):
        offering(folder, place_of(server, Launched(["true"]))).submit(lambda _: None)


def test_what_a_failed_spark_submit_has_made_is_ended(folder):
    server = RecordedCluster("succeeds")
    launched = Launched(["sh", "-c", "echo no such class; exit 5"])
    with pytest.raises(NotSubmittedError, match=r"exit code 5:\nno such class"):
        offering(folder, place_of(server, launched)).submit(lambda _: None)
    assert "PATCH" in [verb for verb, _, _ in server.changes()]
