"""Batches of a Livy in front of YARN: recorded answers of Livy, and what YARN says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    NotSubmittedError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters import livy_yarn
from airflow_occ_provider.submitters.livy_yarn import LivyOnYarn
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from tests.unit.test_livy import KEY, PROTECTED, RecordedLivy, Told, fact, made, serving, told
from tests.unit.test_yarn_cluster import AWAY, NAME, Container, Manager, application

REPORTED = [PROTECTED, fact(fact="end", exit_code=3)]


class Cluster(Manager):
    """A ResourceManager that shows an application by its tag once Livy has submitted it."""

    def __init__(self):
        super().__init__(None)
        self.is_away = self.is_stubborn = False
        self.by_tag = {}

    def submits(self, tag, **more):
        self.by_tag[tag] = self.found = application("RUNNING", tags=frozenset([tag]), **more)
        self.answers = [self.found]

    def ends(self, state="FINISHED", proof=False, **more):
        self.answers = [replace(self.found, state=state, container=Container(proof), **more)]

    def application(self, name):
        self.answer()
        return super().application(name)

    def applications(self, tag, patience_s=None):
        self.answer()
        return [
            self.answers[0]
            for one in self.by_tag.values()
            if any(each == tag or each.startswith(f"{tag}_") for each in one.tags)
        ]

    def kill(self, name):
        self.answer()
        super().kill(name)
        if not self.is_stubborn:
            self.ends("KILLED")

    def answer(self):
        if self.is_away:
            raise AWAY


class LivyInFront(RecordedLivy):
    """Submits a batch to a cluster as soon as it is created."""

    def __init__(self, cluster):
        super().__init__()
        self.cluster, self.begins, self.submits = cluster, False, True

    def add(self, name, state="starting", **more):
        batch = super().add(name, state, **more)
        if self.submits:
            self.cluster.submits(name)
        return batch


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(livy_yarn, "_LOOK_S", 0.01)
    monkeypatch.setattr("airflow_occ_provider.submitters.livy_api._PAUSES_S", ())


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def server(cluster):
    with serving(LivyInFront(cluster)) as one:
        yield one


@pytest.fixture
def one(server, cluster):
    return submitter(server, cluster)


def submitter(server, cluster, report=None, **more):
    removed = []
    options = {"is_on_server": False, "discard": lambda url: removed.append(url) or True, **more}
    new = LivyOnYarn(made(server, report, **options), YarnCluster(cluster, end_s=0.05))
    new.removed = removed
    return new


def starting(server, one):
    """A batch that Livy has not submitted yet, as a later try finds it."""
    server.submits = False
    server.add(f"airflow_occ_{KEY}_1_aa")
    return one.find(KEY)


def test_a_batch_is_tagged_with_its_name_and_recorded_with_its_application(server, one, cluster):
    recorded = []
    handle = one.submit(KEY, recorded.append)
    ((_, body),) = [each for each in server.requests if each[0] == "POST"]
    tags = body["conf"]["spark.yarn.tags"].split(",")
    assert tags == ["airflow_occ", f"airflow_occ_{KEY}", body["name"]]
    assert body["conf"]["spark.yarn.maxAppAttempts"] == "1"
    assert "application" not in recorded[0].facts
    assert recorded[-1] == handle
    assert handle.facts["application"] == NAME
    assert (handle.facts["id"], handle.facts["batch"]) == (0, body["name"])
    assert Handle.from_json(handle.to_json()) == handle


def test_a_batch_that_livy_still_starts_is_the_task_runs_driver(server, one, cluster):
    starting(server, one)
    with pytest.raises(NotSubmittedError, match="of this task run is alive"):
        one.submit(KEY, lambda _: None)
    assert len(server.batches) == 1


def test_its_end_is_that_of_its_container(server, one, cluster):
    handle = one.submit(KEY, lambda _: None)
    assert one.poll(handle) == Running()
    server.batches[0]["state"] = "dead"
    cluster.ends("FAILED", proof=True, diagnostics="User application exited with status 78")
    assert one.poll(handle) == Running()
    cluster.ends("FAILED", proof=None)
    assert "does not prove" in one.poll(handle).reason
    cluster.ends("FAILED", diagnostics="User application exited with status 78")
    assert one.poll(handle) == Ended(78)
    assert one.traits.end_is_final
    assert one.traits.logs == "live"


def test_a_batch_without_an_application_runs_while_livy_starts_it(server, one, cluster):
    handle = starting(server, one)
    assert one.poll(handle) == Running()
    assert one.read(handle, 0) == []
    cluster.submits(handle.facts["batch"])
    assert one.read(handle, 0) == []
    server.batches.clear()
    cluster.ends(final_status="SUCCEEDED")
    assert one.poll(handle) == Ended(0)


def test_a_batch_that_livy_has_forgotten_is_followed_by_its_application(server, one, cluster):
    handle = one.submit(KEY, lambda _: None)
    server.batches.clear()
    server.broken = 99
    later = submitter(server, cluster)
    assert later.poll(handle) == Running()
    later.end(handle)
    assert later.poll(handle) == Ended(-9)
    unknown = replace(handle, facts={**handle.facts, "application": None})
    assert submitter(server, cluster).poll(unknown) == Ended(-9)


def test_a_kill_ends_the_application_and_removes_the_input(server, one, cluster):
    handle = one.submit(KEY, lambda _: None)
    one.end(handle)
    assert cluster.killed == [NAME]
    assert one.poll(handle) == Ended(-9)
    assert one.removed == ["file:///x/1.jsonl"]
    assert 0 in server.batches  # Livy sees the end itself


@pytest.mark.parametrize("trouble", ["is_away", "is_stubborn"])
def test_livy_is_asked_too_if_the_resource_manager_does_not_end_it(server, one, cluster, trouble):
    handle = one.submit(KEY, lambda _: None)
    setattr(cluster, trouble, True)
    one.end(handle)
    assert server.batches == {}
    setattr(cluster, trouble, False)
    assert one.poll(handle) == Running()  # until its container has ended


def test_livy_ends_a_batch_that_has_no_application_yet(server, one, cluster):
    handle = starting(server, one)
    one.end(handle)
    assert server.batches == {}
    assert isinstance(one.poll(handle), Unseen)
    cluster.submits(handle.facts["batch"])  # in the same moment
    one.end(handle)
    assert one.poll(handle) == Ended(-9)


def test_what_livy_was_submitting_meanwhile_is_killed_too(server, one, cluster):
    handle = starting(server, one)
    end = one.livy.end
    one.livy.end = lambda each: end(each) or cluster.submits(handle.facts["batch"])
    one.end(handle)
    assert cluster.killed == [NAME]


def test_a_kill_while_it_is_submitted_ends_what_comes(server, one, cluster):
    one.livy.killed.set()
    handle = one.submit(KEY, lambda _: None)
    assert cluster.killed == [NAME]
    assert one.poll(handle) == Ended(-9)
    assert one.removed == []  # the storage is not asked in a signal handler


def test_a_batch_that_is_not_submitted_is_named_with_its_log(server, one, cluster):
    server.submits, add = False, server.add
    server.add = lambda name, _: add(name, "dead", log=["stdout: ", "no such class", "\nstderr: "])
    with pytest.raises(NotSubmittedError, match="before it submitted anything:\nno such class"):
        one.submit(KEY, lambda _: None)
    assert one.removed


def test_an_end_without_an_application_is_proven_by_the_input_that_is_gone(server, one, cluster):
    handle = starting(server, one)
    server.batches[0].update(state="dead", log=["why"])
    one.livy.discard = lambda _: False
    assert "may come yet" in one.poll(handle).reason
    one.livy.discard = lambda _: True
    assert one.read(handle, 0) == ["why\n"]
    assert one.read(handle, 0) is None
    server.batches.clear()
    assert one.poll(handle) == Ended(1)


def test_an_application_that_comes_while_the_input_is_removed_is_followed(server, one, cluster):
    handle = starting(server, one)
    server.batches[0]["state"] = "dead"
    one.livy.discard = lambda _: cluster.submits(handle.facts["batch"]) or True
    assert not isinstance(one.poll(handle), Ended)
    assert one.poll(handle) == Running()


@pytest.mark.parametrize(
    ("state", "more"), [("running", {}), ("starting", {"appId": "application_9_9"}), ("success", {})]
)
def test_a_livy_that_runs_it_elsewhere_is_refused_with_the_field(server, one, cluster, state, more):
    server.submits, add = False, server.add
    server.add = lambda name, _: add(name, state, **more)
    with pytest.raises(
        ConfigurationError, match=r"^yarn_resourcemanager_webapp_address: http://rm:8088"
    ):
        one.submit(KEY, lambda _: None)
    assert server.batches == {} or state == "success"


def test_elsewhere_is_unseen_later(server, one):
    handle = starting(server, one)
    server.batches[0]["state"] = "running"
    assert "shows no application" in one.poll(handle).reason


def test_nothing_is_created_beside_a_living_application_of_the_task_run(server, one, cluster):
    cluster.submits(f"airflow_occ_{KEY}")
    with pytest.raises(NotSubmittedError, match="is alive"):
        one.submit(KEY, lambda _: None)
    assert server.batches == {}


def test_it_is_found_by_livy_or_else_by_its_tag(server, one, cluster, monkeypatch):
    handle = one.submit(KEY, lambda _: None)
    assert one.find(KEY).facts["batch"] == handle.facts["batch"]
    server.batches.clear()
    found = one.find(KEY)
    assert (found.submitter, found.facts["application"]) == ("livy", NAME)
    assert one.poll(found) == Running()
    one.end(found)
    assert one.find(KEY) is None


def test_an_application_has_ended_though_livy_counts_its_batch_as_running(server, one, cluster):
    one.submit(KEY, lambda _: None)
    assert one.find(KEY).facts["application"]
    cluster.ends()
    assert one.livy.find(KEY)
    assert one.find(KEY) is None


def test_a_resource_manager_that_is_away_is_waited_for_until_its_patience_is_over(
    server, one, cluster, monkeypatch
):
    clock = [1000.0]
    monkeypatch.setattr(livy_yarn.time, "monotonic", lambda: clock[0])
    handle = starting(server, one)
    cluster.is_away = True
    assert one.poll(handle).is_away
    assert one.read(handle, 0) == []
    clock[0] += one.livy.patience.limit_s
    assert not one.poll(handle).is_away
    with pytest.raises(SubmitterUnreachableError, match="it is away: whether it commits"):
        one.read(handle, 0)
    cluster.is_away = False
    assert one.read(handle, 0) == []
    cluster.is_away = True
    assert one.poll(handle).is_away


def test_a_batch_that_is_unknown_everywhere_is_unseen_and_given_up(server, one, monkeypatch):
    handle = starting(server, one)
    server.batches.clear()
    assert "neither Livy nor" in one.poll(handle).reason
    assert one.read(handle, 0) == []
    monkeypatch.setattr(livy_yarn, "_PROOF_S", 0.0)
    with pytest.raises(SubmitterUnreachableError, match="neither Livy nor"):
        one.read(handle, 0)


def test_an_application_is_recorded_later_if_livy_is_away_meanwhile(server, one, cluster):
    server.submits = False
    create = one.livy.create

    def created(*given):
        handle = create(*given)
        server.broken = 9
        return handle

    one.livy.create = created
    handle = one.submit(KEY, lambda _: None)
    assert "application" not in handle.facts
    assert one.poll(handle).is_away
    cluster.submits(handle.facts["batch"])
    assert one.poll(handle) == Running()


class CutOff(YarnCluster):
    """Can read no end of a log."""

    def read(self, handle, wait_s):
        return None

    def poll(self, handle):
        return replace(super().poll(handle), log_is_whole=False)


@pytest.mark.parametrize(("lines", "is_whole"), [(REPORTED, True), (REPORTED[:1], False), ([], False)])
def test_the_report_is_read_where_yarn_has_lost_the_end_of_the_log(server, cluster, lines, is_whole):
    one = submitter(server, cluster, told(lines))
    handle = one.submit(KEY, lambda _: None)
    cluster.ends("FAILED", diagnostics="exited with status 3")
    one.yarn = CutOff(cluster)
    assert one.read(handle, 0) == (lines or None)
    assert one.read(handle, 0) is None
    assert one.poll(handle) == Ended(3, log_is_whole=is_whole)


def test_a_whole_log_needs_no_report(server, cluster):
    report = Told()
    report.refusals = 9
    one = submitter(server, cluster, report)
    handle = one.submit(KEY, lambda _: None)
    cluster.ends(final_status="SUCCEEDED")
    while one.read(handle, 0) is not None:
        pass
    assert one.poll(handle) == Ended(0)
    assert report.refusals == 9
