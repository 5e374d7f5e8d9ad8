"""The follower of pods, against what a real API server has shown, and its schema."""

from __future__ import annotations

import base64
import json
import time
from datetime import datetime
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from kubernetes.client import ApiException

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    NotSubmittedError,
    StateStoreError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters.kubernetes import manifests
from airflow_occ_provider.submitters.kubernetes.api import PodApi
from airflow_occ_provider.submitters.kubernetes.cluster import KubernetesCluster
from airflow_occ_provider.submitters.kubernetes.pod import Pod
from airflow_occ_provider.submitters.kubernetes.pod_log import PodLog
from airflow_occ_provider.submitters.patience import Patience

RECORDED = Path(__file__).parents[1] / "golden" / "kubernetes"
SCHEMA = json.loads((RECORDED / "schema.json").read_text())
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
KEY = "0f0e4a5c-of-a-task-run"


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

ENDS = {
    "succeeds": 0,
    "fails": 78,
    "is_ended_by_us": -9,
    "is_deleted": -9,
    "runs_out_of_memory": -9,
    "is_evicted": -9,
    "has_no_image": -9,
    "is_never_given_its_input": -9,
    "is_never_scheduled": -9,
}
SAID = {
    "fails": "exit code 78 (Error)",
    "is_ended_by_us": "exit code 137 (Error; the pod: DeadlineExceeded)",
    "runs_out_of_memory": "exit code 137 (OOMKilled)",
    "is_evicted": "; the pod: Evicted)",
    "has_no_image": "Failed (DeadlineExceeded",
    "is_never_scheduled": "Unschedulable",
}


@pytest.mark.parametrize(("name", "code"), ENDS.items())
def test_the_containers_status_alone_proves_an_end(name, code):
    proofs = [pod.proof(time.time()) for pod in pods(name)]
    assert proofs[0] == Running()
    assert proofs[-1] == Ended(code)
    ended = [isinstance(one, Ended) for one in proofs]
    assert ended == sorted(ended)


@pytest.mark.parametrize(("name", "said"), SAID.items())
def test_a_pod_says_for_people_what_it_waits_for_and_how_it_ended(name, said):
    assert any(said in pod.describe() for pod in pods(name))


def test_a_running_driver_needs_no_words():
    assert any(pod.has_begun and not pod.describe() for pod in pods("is_ended_by_us"))
    assert all(not pod.describe() for pod in pods("is_never_given_its_input") if pod.is_living)


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


def test_a_node_that_refuses_a_pod_has_never_run_it():
    refused = changed("loses_its_node", phase="Failed", reason="OutOfcpu", containerStatuses=[])
    assert refused.proof(0) == Ended(-9)
    assert "OutOfcpu" in refused.describe()


@pytest.mark.parametrize(("code", "expected"), [(143, -15), (255, -127), (128, 128), (1, 1)])
def test_a_signal_is_a_negative_exit_code(code, expected):
    pod = changed("fails")
    pod.shown["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = code
    assert pod.proof(0) == Ended(expected)


@pytest.mark.parametrize(
    ("metadata", "status", "code"),
    [
        ({}, {}, 0),
        ({"deletionTimestamp": "2026-11-23T14:00:30Z", "deletionGracePeriodSeconds": 30}, {}, -15),
        ({"deletionTimestamp": "2026-11-23T14:00:40Z", "deletionGracePeriodSeconds": 30}, {}, 0),
        ({}, {"reason": "DeadlineExceeded"}, -15),
        ({}, {"reason": "Evicted"}, -15),
    ],
)
def test_a_driver_that_was_asked_to_end_is_no_success(metadata, status, code):
    pod = changed("succeeds", **status)
    ended = pod.shown["status"]["containerStatuses"][0]["state"]["terminated"]
    ended["finishedAt"] = "2026-11-23T14:00:05Z"
    pod.shown["metadata"].update(metadata)
    assert pod.proof(0) == Ended(code)


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


@pytest.mark.parametrize("name", [*ENDS, "is_deleted_by_force", "loses_its_node"])
def test_the_recorded_pods_fit_the_schema(name):
    for event in events(name):
        check("io.k8s.api.core.v1.Pod", event["object"])


def test_every_manifest_fits_the_servers_schema():
    pod = pods("succeeds")[0]
    secret = manifests.secret("airflow-occ-1-2", KEY, {"a.py": b"\xff\x00"}, pod=pod.name, uid=pod.uid)
    check("io.k8s.api.core.v1.Secret", secret)
    assert base64.b64decode(secret["data"]["a.py"]) == b"\xff\x00"
    check(f"{META}.DeleteOptions", manifests.deletion(pod.uid))
    patched = {**pod.shown, "spec": {**pod.shown["spec"], **manifests.ends_now()["spec"]}}
    check("io.k8s.api.core.v1.Pod", patched)
    with pytest.raises(AssertionError):
        check("io.k8s.api.core.v1.Secret", {**secret, "dta": {}})


def test_sparks_configuration_has_labels_secret_and_namespace():
    conf = manifests.protected_conf(KEY, {"a": 1}, submission="s-1", namespace="n")
    assert conf == {
        "a": "1",
        "spark.kubernetes.namespace": "n",
        "spark.kubernetes.submission.waitAppCompletion": "false",
        "spark.kubernetes.driver.secrets.s-1": "/etc/airflow-occ",
        **{
            f"spark.kubernetes.{role}.label.airflow-occ-{name}": value
            for role in ("driver", "executor")
            for name, value in (("identity", KEY), ("submission", "s-1"))
        },
    }


@pytest.mark.parametrize("key", [KEY, "k" * 64, "Ä key", "-a", "a-"])
def test_names_and_labels_are_those_that_kubernetes_allows(key):
    import re

    label = manifests.identity_label(key)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9_.]{0,61}[a-z0-9])?", label)
    assert (label == key) == (key == KEY)
    name = manifests.submission_name(key)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", f"{name}-volume")  # Spark's volume
    assert manifests.submission_name(key) != name


def test_what_allows_one_submission_or_does_not_fit_is_refused():
    fixed = {"spark.kubernetes.driver.pod.name": "mine"}
    with pytest.raises(ConfigurationError, match=r"conf spark.kubernetes.driver.pod.name: .*mine"):
        manifests.protected_conf(KEY, fixed, submission="s", namespace="n")
    manifests.refuse_large({"a": b"x" * 1024 * 1024})
    with pytest.raises(ConfigurationError, match=r"application: .*1048577 bytes.*s3a://"):
        manifests.refuse_large({"a": b"x" * 1024 * 1024, "b": b"y"})


# Its log.

LOG = [f"2026-11-23T14:00:{n // 10:02}.{n % 10}00000000Z line {n}\n" for n in range(40)]


def served(lines, asked):
    def read(since):
        asked.append(since)
        return "".join(one for one in lines if not since or one[:19] >= since[:19]).encode()

    return read


def test_a_log_is_read_once_and_only_its_last_two_seconds_again():
    log, asked, found = PodLog(), [], []
    for count in (0, 1, 7, 25, 25, 40):
        found += log.lines(served(LOG[:count], asked))
    assert found == [f"line {n}\n" for n in range(40)]
    assert asked[:3] == [None, None, "2026-11-23T13:59:59Z"]
    assert asked[-1] == "2026-11-23T14:00:01Z"
    assert log.is_whole


def test_equal_lines_of_one_moment_are_kept_apart():
    log = PodLog()
    assert log.lines(lambda _: (LOG[0] * 2).encode()) == ["line 0\n"] * 2
    assert log.lines(lambda _: (LOG[0] * 3).encode()) == ["line 0\n"]


def test_an_incomplete_line_is_read_when_it_is_complete_or_the_last_one():
    log = PodLog()
    text = "".join(LOG[:2]).encode()
    assert log.lines(lambda _: text[:-3]) == ["line 0\n"]
    assert log.lines(lambda _: text[:-1], is_over=True) == ["line 1\n"]


def test_a_log_whose_beginning_was_rotated_away_is_not_whole():
    log = PodLog()
    log.lines(lambda _: "".join(LOG[:5]).encode())
    assert log.lines(lambda _: "".join(LOG[8:10]).encode()) == ["line 8\n", "line 9\n"]
    assert not log.is_whole


@pytest.mark.parametrize(("started", "is_whole"), [("13:59:30", True), ("13:58:00", False)])
def test_a_log_that_begins_long_after_its_container_is_not_whole(started, is_whole):
    log = PodLog()
    log.lines(lambda _: "".join(LOG).encode(), started=f"2026-11-23T{started}Z")
    assert log.is_whole is is_whole


def test_a_node_that_says_it_has_no_log_gives_no_lines():
    log = PodLog()
    assert log.lines(lambda _: b"unable to retrieve container logs for c://1", is_over=True) == []
    assert not log.is_whole
    assert PodLog().lines(lambda _: None) is None


def test_a_node_may_live_in_another_time_zone():
    log, asked = PodLog(), []
    lines = ["2026-11-23T15:00:03.1+01:00 a\n"]
    assert log.lines(served(lines, asked)) == ["a\n"]
    assert log.lines(served(lines, asked)) == []
    assert asked == [None, "2026-11-23T14:00:02Z"]


# The whole follower, over a cluster that shows recorded states.


class Answer:
    def __init__(self, content):
        self.data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self._lines = content if isinstance(content, list) else []

    def __iter__(self):
        return iter(json.dumps(one).encode() for one in self._lines)

    def close(self):
        pass


class Configuration:
    host = "https://cluster.test"


class RecordedCluster:
    """An API server that shows the states of a recorded pod, one with each look."""

    configuration = Configuration()

    def __init__(self, name, log=b""):
        self.events, self.log, self.asked, self.secrets = events(name), log, [], set()
        self.at, self.broken = 0, None

    def call_api(self, path, verb, *, query_params, body, header_params, _request_timeout, **_):
        assert max(_request_timeout) <= 15
        parts, query = path.removeprefix("/api/v1/namespaces/spark/").split("/"), dict(query_params)
        self.asked.append((verb, "/".join(parts), body))
        if self.broken:
            raise self.broken
        return getattr(self, f"{verb.lower()}_{parts[0]}")(parts[1:], query, body)

    @property
    def now(self):
        return self.events[min(self.at, len(self.events) - 1)]

    def get_pods(self, parts, query, _):
        if parts[1:] == ["log"]:
            since = query.get("sinceTime", "")[:19].encode()
            return Answer(b"".join(one for one in self.log.splitlines(True) if one[:19] >= since))
        if "watch" in query:
            seen = int(query["resourceVersion"])
            return Answer([one for one in self.events if version(one) > seen])
        event = self.now
        if not parts:
            is_driver = query["labelSelector"].endswith("spark-role=driver")
            shown = [event["object"]] if is_driver and event["type"] != "DELETED" else []
            return Answer({"items": shown})
        self.at += 1
        if event["type"] == "DELETED":
            raise ApiException(404, "Not Found")
        return Answer(event["object"])

    def get_secrets(self, parts, *_):
        if parts[0] not in self.secrets:
            raise ApiException(404, "Not Found")
        return Answer({})

    def post_secrets(self, _, __, body):
        self.secrets.add(body["metadata"]["name"])
        return Answer({})

    def patch_pods(self, *_):
        return Answer({})

    delete_pods = patch_pods


def version(event):
    return int(event["object"]["metadata"]["resourceVersion"])


def follower(server, **more):
    api = PodApi(server, "spark")
    return KubernetesCluster(api, api, **{"end_s": 0.0, "poll_s": 0.0, **more})


def handle_of(server):
    pod = Pod(server.events[0]["object"])
    facts = {"key": KEY, "pod": pod.name, "uid": pod.uid, "namespace": "spark", "submission": "s"}
    return Handle("kubernetes", pod.name, facts)


def read_all(one, handle):
    lines, deadline = [], time.monotonic() + 10
    while (found := one.read(handle, 0)) is not None:
        assert time.monotonic() < deadline
        lines += found
    return lines


@pytest.mark.parametrize(("name", "code"), ENDS.items())
def test_a_recorded_driver_is_followed_to_its_end(name, code):
    server = RecordedCluster(name, "".join(LOG).encode())
    server.secrets.add("s")
    one, handle = follower(server), handle_of(server)
    lines = read_all(one, handle)
    state = one.poll(handle)
    assert isinstance(state, Ended)
    assert state.exit_code == code
    assert ("line 39\n" in lines) == any(pod.has_begun for pod in pods(name))
    assert [line for line in lines if line.startswith("Pod ")]


def test_a_pod_that_is_gone_has_ended_if_its_last_state_proves_it():
    server = RecordedCluster("is_deleted")
    server.at, one, handle = 1, follower(server), handle_of(server)
    assert one.poll(handle) == Running()
    server.at = len(server.events) - 1
    assert one.poll(handle) == Ended(-9)


@pytest.mark.parametrize("name", ["is_deleted", "is_deleted_by_force"])
def test_a_pod_that_is_gone_is_unseen_if_nothing_proves_its_end(name):
    server = RecordedCluster(name)
    one, handle = follower(server), handle_of(server)
    server.at = 1
    if name == "is_deleted_by_force":
        assert one.poll(handle) == Running()
    server.at = len(server.events) - 1
    state = one.poll(handle)
    assert isinstance(state, Unseen)
    assert not state.is_away
    assert one.read(handle, 0) == []


def test_another_pod_of_the_same_name_is_not_the_driver():
    server = RecordedCluster("succeeds")
    other = Handle("kubernetes", "x", {**handle_of(server).facts, "uid": "another"})
    assert isinstance(follower(server).poll(other), Unseen)


def test_a_cluster_that_does_not_answer_is_asked_again_until_patience_is_over():
    server = RecordedCluster("loses_its_node")
    server.secrets.add("s")
    one, handle = follower(server, patience=Patience(0.2)), handle_of(server)
    server.broken = ApiException(503, "Service Unavailable")
    state = one.poll(handle)
    assert isinstance(state, Unseen)
    assert state.is_away
    assert one.read(handle, 0) == []
    time.sleep(0.2)
    with pytest.raises(SubmitterUnreachableError, match="has not answered for 0 minutes"):
        one.read(handle, 0)
    assert not one.poll(handle).is_away
    server.broken = None
    assert one.poll(handle) == Running()
    assert not one.patience.is_over


def test_a_pod_that_was_not_given_its_input_is_not_found_but_deleted():
    server = RecordedCluster("loses_its_node")
    server.events[:] = server.events[:1]
    server.events[0]["object"]["metadata"]["labels"]["airflow-occ-submission"] = "s"
    assert follower(server).find(KEY) is None
    assert server.asked[-1][0] == "DELETE"
    server.secrets.add("s")
    assert follower(server).find(KEY).facts["submission"] == "s"


def test_a_driver_is_ended_by_a_deadline_that_keeps_its_status_and_log():
    server = RecordedCluster("is_ended_by_us")
    server.at = 2
    one = follower(server, end_s=0.3)
    one.end(handle_of(server))
    patches = [body for verb, _, body in server.asked if verb == "PATCH"]
    assert patches == [{"spec": {"activeDeadlineSeconds": 1}}]


def submitted(server, **more):
    """A submitter whose spark-submit makes the server's pod."""
    shown = server.events[0]["object"]

    def command(conf):
        shown["metadata"]["labels"] = {"airflow-occ-submission": _submission(conf)}
        return ["true"]

    return follower(server, command=command, content={"a": b"1"}, **more)


def _submission(conf):
    return conf["spark.kubernetes.driver.label.airflow-occ-submission"]


def test_a_driver_is_recorded_before_it_gets_its_input():
    server, at_record = RecordedCluster("succeeds"), []
    server.events[:] = server.events[:1]
    one = submitted(server)
    handle = one.submit(KEY, lambda _: at_record.append(set(server.secrets)))
    assert at_record == [set()]
    assert server.secrets == {handle.facts["submission"]}
    assert Handle.from_json(handle.to_json()) == handle


def test_a_driver_that_cannot_be_recorded_never_starts():
    server = RecordedCluster("succeeds")
    server.events[:] = server.events[:1]

    def refuse(_):
        raise StateStoreError("the store is away")

    with pytest.raises(StateStoreError):
        submitted(server).submit(KEY, refuse)
    assert not server.secrets
    assert server.asked[-1][0] == "DELETE"


def test_a_spark_submit_that_fails_leaves_nothing():
    server = RecordedCluster("succeeds")
    server.events[:] = server.events[:1]
    one = follower(server, command=lambda _: ["sh", "-c", "echo no such class; exit 5"])
    with pytest.raises(NotSubmittedError, match=r"exit code 5:\nno such class"):
        one.submit(KEY, lambda _: None)
    assert server.asked[-1][0] == "DELETE"
    server.events[0]["type"] = "DELETED"
    with pytest.raises(SubmitterUnreachableError, match="kubernetes_conn_id"):
        follower(server, command=lambda _: ["true"]).submit(KEY, lambda _: None)
