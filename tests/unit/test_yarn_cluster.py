"""What YarnCluster decides without a YARN: its configuration, its tags, and what proves an end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import (
    ConfigurationError,
    NotSubmittedError,
    SubmitterUnreachableError,
)
from airflow_occ_provider.submitters.patience import Patience
from airflow_occ_provider.submitters.yarn import cluster
from airflow_occ_provider.submitters.yarn.cluster import YarnCluster
from airflow_occ_provider.submitters.yarn.listing import RunningApplications
from airflow_occ_provider.submitters.yarn.resource_manager import Application, ResourceManager
from airflow_occ_provider.submitters.yarn.submission_conf import identity_tag, protected_conf

NAME = "application_1_0001"
ADDRESS = "http://rm:8088"


class Container:
    """A container of which a node knows what a test says."""

    node, manager, id = "node:1", "http://node:2", "container_1_0001_01_000001"

    def __init__(self, proof):
        self.proof = proof

    def lives(self, _):
        return self.proof

    def log(self, *_):
        return b""


def application(state="KILLED", proof=None, **more):
    values = {"container": Container(proof), "logs": "NOT_START", "started_ms": 1, **more}
    final = state if state in ("KILLED", "FAILED") else "UNDEFINED"
    values = {"tags": frozenset(), "tracking_url": "", "diagnostics": "", **values}
    return Application(NAME, "me", state, final, **values)


class Manager(ResourceManager):
    """Answers from a list, the last answer again and again; ``None`` is "not found"."""

    def __init__(self, *answers, tagged=()):
        super().__init__([ADDRESS])
        self.answers, self.tagged, self.killed = list(answers), tagged, []
        self.asked = []

    def application(self, _):
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, Exception):
            raise found
        return found

    def applications(self, tag, patience_s=None):
        self.asked.append(tag)
        if isinstance(self.tagged, Exception):
            raise self.tagged
        return list(self.tagged)

    def kill(self, name):
        self.killed.append(name)


HANDLE = Handle("yarn", NAME, {"key": "k", "application": NAME, "resource_managers": [ADDRESS]})
AWAY = SubmitterUnreachableError("it is away")


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (application("ACCEPTED"), Running()),
        (application("KILLED", proof=True), Running()),
        (application("KILLED", proof=False), Ended(-9)),
        (application("KILLED", container=None), Ended(-9)),
        (application("FAILED", proof=False, diagnostics="exited with status 78"), Ended(78)),
    ],
)
def test_a_final_state_is_an_end_only_with_a_proof(found, state):
    assert YarnCluster(Manager(found)).poll(HANDLE) == state


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (application("FAILED", logs="SUCCEEDED"), "node:1 does not prove"),
        (application("FAILED", container=None, started_ms=0), "hides the application"),
        (None, "does not know the application"),
        (AWAY, "it is away"),
    ],
)
def test_without_a_proof_it_is_unseen(found, reason):
    state = YarnCluster(Manager(found)).poll(HANDLE)
    assert isinstance(state, Unseen)
    assert reason in state.reason


def test_the_logs_of_the_drivers_node_prove_its_end(tmp_path):
    def open_log(path):
        return (tmp_path / path).open("rb")

    one = YarnCluster(Manager(application("FAILED")), open_log=open_log)
    assert isinstance(one.poll(HANDLE), Unseen)
    folder = tmp_path / "me" / "bucket-logs-tfile" / "0001" / NAME
    folder.mkdir(parents=True)
    (folder / "other_1").touch()
    (folder / "node_1.tmp").touch()
    assert isinstance(one.poll(HANDLE), Unseen)
    (folder / "node_1").touch()
    assert one.poll(HANDLE) == Ended(1)


def test_a_proven_end_stays_proven():
    one = YarnCluster(Manager(application("KILLED", proof=False), AWAY))
    assert one.poll(HANDLE) == one.poll(HANDLE) == Ended(-9)


def test_only_a_running_driver_is_found(monkeypatch):
    monkeypatch.setattr(cluster, "end_survivors", lambda _: None)
    over, living = application("FAILED"), replace(application("RUNNING"), id="application_1_0002")
    assert YarnCluster(Manager(None, tagged=[over])).find("k") is None
    found = YarnCluster(Manager(None, tagged=[over, living])).find("k")
    assert found.facts["application"] == "application_1_0002"


class Launches:
    """Counts the runs of ``spark-submit``, and shows what each has submitted."""

    def __init__(self, manager):
        self.manager, self.count = manager, 0

    def run(self, *_):
        self.count += 1
        self.manager.tagged = [application("ACCEPTED")]
        return 0

    def said(self):
        return []


def launching(tagged):
    one = YarnCluster(Manager(None, tagged=tagged))
    one._launcher = Launches(one.manager)
    return one


def test_nothing_is_submitted_beside_a_living_application_of_the_task_run():
    twin = replace(application("RUNNING"), id="application_1_0007")
    one, recorded = launching([application("FINISHED", proof=False), twin]), []
    with pytest.raises(NotSubmittedError, match="YARN application_1_0007") as refused:
        one.submit("k", recorded.append)
    assert (refused.value.retry, refused.value.committed) == (True, False)
    assert (one._launcher.count, recorded, one.manager.killed) == (0, [], [])


def test_an_ended_application_of_the_task_run_is_no_twin():
    one, recorded = launching([application("FINISHED", proof=False)]), []
    assert [one.submit("k", recorded.append)] == recorded
    assert one._launcher.count == 1


def test_nothing_is_submitted_while_the_resource_manager_is_away():
    one = launching(AWAY)
    with pytest.raises(SubmitterUnreachableError):
        one.submit("k", lambda _: None)
    assert one._launcher.count == 0
    assert one.manager.asked == [identity_tag("k")]  # once: the client repeats a call itself


def test_a_log_ends_when_no_proof_comes(monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: clock[0])
    one = YarnCluster(Manager(application("FAILED")))
    assert one.read(HANDLE, 0) == []
    clock[0] += 60
    one.manager.answers = [AWAY]  # an absent ResourceManager may come back
    assert one.read(HANDLE, 0) == []
    one.manager.answers = [application("FAILED")]
    assert one.read(HANDLE, 0) == []
    clock[0] += 61
    assert one.read(HANDLE, 0) is None


def test_a_resource_manager_that_stays_away_is_given_up(monkeypatch, caplog):
    clock = [1000.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: clock[0])
    caplog.set_level("INFO", cluster.__name__)
    one = YarnCluster(Manager(AWAY))
    assert one.read(HANDLE, 0) == []
    clock[0] += 1799
    assert one.read(HANDLE, 0) == []
    one.manager.answers = [application("RUNNING", container=None)]
    assert one.read(HANDLE, 0) == []  # each answer starts the time anew
    one.manager.answers = [AWAY]
    clock[0] += 1799
    assert one.read(HANDLE, 0) == []
    clock[0] += 1799
    assert one.read(HANDLE, 0) == []
    assert one.poll(HANDLE) == Unseen("it is away", is_away=True)
    clock[0] += 1
    with pytest.raises(SubmitterUnreachableError, match=r"at http://rm:8088 .* 30 minutes") as error:
        one.read(HANDLE, 0)
    assert "whether it commits, is unknown" in error.value.message
    assert error.value.committed is None
    assert one.poll(HANDLE) == Unseen(str(error.value))
    said = [record.getMessage() for record in caplog.records]
    silent = f"Asking for {NAME} again, for up to 30 minutes: it is away"
    assert said == [silent, f"For {NAME}, the ResourceManager answers again.", silent]


def test_the_patience_is_a_choice(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: clock[0])
    one = YarnCluster(Manager(AWAY), patience=Patience(60, "the ResourceManager"))
    assert one.read(HANDLE, 0) == []
    clock[0] += 60
    with pytest.raises(SubmitterUnreachableError, match="for 1 minute"):
        one.read(HANDLE, 0)


def test_a_proven_end_whose_log_stays_out_of_reach_is_given_up(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: clock[0])
    one = YarnCluster(Manager(application("KILLED", proof=False), AWAY))
    assert one.poll(HANDLE) == Ended(-9)
    assert one.read(HANDLE, 0) == []
    clock[0] += 1800
    with pytest.raises(SubmitterUnreachableError):
        one.read(HANDLE, 0)
    assert one.poll(HANDLE) == Ended(-9)


def test_a_kill_is_asked_of_the_cluster_of_the_handle(monkeypatch):
    asked = []
    monkeypatch.setattr(ResourceManager, "kill", lambda self, name: asked.append((self.addresses, name)))
    monkeypatch.setattr(ResourceManager, "application", lambda *_: None)
    facts = {**HANDLE.facts, "resource_managers": ["http://old:8088"]}
    YarnCluster(ResourceManager([ADDRESS])).end(Handle("yarn", NAME, facts))
    assert asked == [(("http://old:8088",), NAME)]


def test_yarn_runs_a_driver_once_under_all_tags():
    conf = protected_conf("0a-1b", {"spark.yarn.tags": "mine, yours", "a": 1}, submission="s")
    assert conf == {
        "a": "1",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.tags": "mine,yours,airflow_occ,airflow_occ_0a-1b,s",
    }


@pytest.mark.parametrize("attempts", ["2", 2, ""])
def test_another_number_of_attempts_is_refused(attempts):
    with pytest.raises(ConfigurationError, match="maxAppAttempts"):
        protected_conf("k", {"spark.yarn.maxAppAttempts": attempts}, submission="s")


def test_keys_that_yarn_cannot_tell_apart_get_other_tags():
    keys = ["k", "K", "k,l", "\u00e4", "x" * 65, "x" * 66]
    tags = {identity_tag(key) for key in keys}
    assert len(tags) == len(keys)
    assert all(tag == tag.lower() and tag.isascii() and "," not in tag for tag in tags)
    assert max(map(len, tags)) + len("_12345678") <= 100


class ListingManager(Manager):
    """Lists running applications, and counts what it is asked."""

    def __init__(self, running, *answers):
        super().__init__(*answers)
        self.running_now, self.listings, self.alone = running, 0, 0

    def running(self, _):
        self.listings += 1
        if isinstance(self.running_now, Exception):
            raise self.running_now
        return self.running_now

    def application(self, name):
        self.alone += 1
        return super().application(name)


def test_followers_share_one_listing_until_an_application_is_not_in_it():
    manager = ListingManager([application("RUNNING")], application("KILLED", proof=False))
    running = RunningApplications(manager, 600.0)
    followers = [YarnCluster(manager, running=running) for _ in range(20)]
    assert {one.poll(HANDLE) for one in followers for _ in range(3)} == {Running()}
    assert (manager.listings, manager.alone) == (1, 0)
    other = RunningApplications(manager, 0.0)
    manager.running_now = []
    assert YarnCluster(manager, running=other).poll(HANDLE) == Ended(-9)
    assert (manager.listings, manager.alone) == (2, 1)


def test_an_application_that_is_killed_is_asked_for_alone():
    manager = ListingManager([application("RUNNING")], application("KILLED", proof=False))
    one = YarnCluster(manager, running=RunningApplications(manager, 600.0))
    assert one.poll(HANDLE) == Running()
    one.end(HANDLE)
    assert one.poll(HANDLE) == Ended(-9)
    assert manager.killed == [NAME]


def test_an_away_resource_manager_is_asked_once_for_all():
    manager = ListingManager(AWAY, application())
    running = RunningApplications(manager, 600.0)
    followers = [YarnCluster(manager, running=running) for _ in range(5)]
    assert all(one.poll(HANDLE) == Unseen(str(AWAY), is_away=True) for one in followers)
    assert (manager.listings, manager.alone) == (1, 0)
