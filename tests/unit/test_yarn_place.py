"""What YARN as a place decides without a YARN: its configuration, and what proves an end."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.driver.contract import Hello
from airflow_occ_provider.errors import SubmitterUnreachableError
from airflow_occ_provider.submitters.yarn_place import (
    Application,
    ResourceManager,
    YarnPlace,
    attempt_tag,
    submission_conf,
)

NAME, FOLDER = "application_1_0001", "file:///lake/.airflow_occ/t/key/0001"
FIRST, SECOND = "container_1_0001_01_000001", "container_1_0001_02_000001"
ADDRESS = "http://rm:8088"
AWAY = SubmitterUnreachableError("it is away")
HELLO = Hello("n1", details={"application_id": NAME, "container": FIRST})


class Container:
    """A container of which a node knows what a test says."""

    manager = "http://node:1"

    def __init__(self, proof, name=FIRST):
        self.proof, self.id = proof, name

    def lives(self, _):
        return self.proof


def application(state="RUNNING", container=None, **more):
    values = {"container": container, "started_ms": 1, "tags": frozenset((attempt_tag(FOLDER),)), **more}
    return Application(NAME, state, **{"tracking_url": "", "diagnostics": "", **values})


class Manager(ResourceManager):
    """Knows one application, and the containers of its earlier attempts."""

    def __init__(self, shown, *earlier):
        super().__init__([ADDRESS])
        self.shown, self.earlier, self.killed = shown, earlier, []

    def application(self, name):
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown if self.shown and self.shown.id == name else None

    def applications(self, tag):
        if isinstance(self.shown, Exception):
            raise self.shown
        return [self.shown] if self.shown and tag in self.shown.tags else []

    def containers(self, name):
        assert name == NAME
        return list(self.earlier)

    def kill(self, name):
        self.killed.append(name)


def handle_of(hello=HELLO, folder=FOLDER):
    name, facts = YarnPlace(Manager(None)).identify(hello)
    return Handle("yarn", name, {**facts, "folder": folder})


def state(shown, *earlier, handle=None):
    return YarnPlace(Manager(shown, *earlier)).state(handle or handle_of())


def test_a_driver_is_named_by_its_application():
    handle = handle_of()
    assert handle.name == f"YARN {NAME}"
    expected = {"application": NAME, "container": FIRST, "resource_managers": [ADDRESS]}
    expected["url"] = f"{ADDRESS}/cluster/app/{NAME}"
    assert handle.facts == {**expected, "folder": FOLDER}
    assert Handle.from_json(handle.to_json()) == handle


@pytest.mark.parametrize(
    "text", ["", "application_1_0001/state?x=", "application_1_\u0661", "application_1", "a" * 9999]
)
def test_a_hello_may_name_anything(text):
    handle = handle_of(Hello("n1", details={"application_id": text, "container": text}))
    assert handle.name == "driver n1"
    assert (handle.facts["application"], handle.facts["container"]) == ("", "")
    assert isinstance(state(application("KILLED", Container(False)), handle=handle), Unseen)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (application("RUNNING", Container(None)), Running()),
        (application("KILLED", Container(True)), Running()),
        (application("KILLED", Container(False)), Ended(None)),
        (application("FAILED", Container(False)), Ended(None)),
    ],
)
def test_a_final_state_is_an_end_only_with_a_proof(shown, expected):
    assert state(shown) == expected


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        (application("FAILED", Container(None)), "node:1 does not prove"),
        (application("FAILED"), "does not name the driver's container"),
        (application("FAILED", Container(False), started_ms=0), "hides the application"),
        (None, "does not know the application"),
        (application("KILLED", Container(False), tags=frozenset(("airflow_occ",))), "does not know"),
    ],
)
def test_without_a_proof_it_is_unseen(shown, reason):
    unseen = state(shown)
    assert isinstance(unseen, Unseen)
    assert reason in unseen.reason


@pytest.mark.parametrize("of_application", ["RUNNING", "ACCEPTED", "FAILED"])
@pytest.mark.parametrize(
    ("proof", "expected"), [(True, Running()), (False, Ended(None)), (None, Unseen("any"))]
)
def test_the_end_of_a_second_attempt_is_not_that_of_the_driver(of_application, proof, expected):
    """YARN makes it once the node of the first is lost, where the driver may run on."""
    latest = None if of_application == "ACCEPTED" else Container(False, SECOND)
    shown = application(of_application, latest, diagnostics="exited with status 78")
    answer = state(shown, Container(False, SECOND), Container(proof))
    assert type(answer) is type(expected)
    assert isinstance(answer, Unseen) or answer == expected


def test_a_resource_manager_that_is_away_says_nothing():
    with pytest.raises(SubmitterUnreachableError):
        state(AWAY)


def test_only_what_an_attempt_has_submitted_is_killed():
    other = handle_of(folder=f"{FOLDER}0")
    for handle, folder in ((handle_of(), ""), (None, FOLDER)):
        manager = Manager(application("RUNNING", Container(True)))
        YarnPlace(manager).end(handle, folder)
        YarnPlace(manager).end(other, FOLDER)
        assert manager.killed == [NAME]
    over = Manager(application("KILLED", Container(True)))
    YarnPlace(over).end(handle_of(), "")
    assert over.killed == []


def test_before_a_hello_yarn_says_why_no_driver_comes():
    def failure(*shown):
        manager = Manager(None)
        manager.applications = lambda tag: [one for one in shown if one and tag in one.tags]
        return YarnPlace(manager).failure(FOLDER)

    assert failure(application("ACCEPTED")) == ""
    told = failure(application("FAILED", Container(False), diagnostics="no such queue"))
    assert f"{NAME} is FAILED: no such queue\n" in told
    assert f"yarn logs -applicationId {NAME}" in told
    first = application("FAILED", diagnostics="no room")
    assert failure(first, application("ACCEPTED", started_ms=2)) == "", "it was submitted again"
    assert "no queue" in failure(first, application("FAILED", started_ms=2, diagnostics="no queue"))
    assert f"{ADDRESS} shows no application with the tag {attempt_tag(FOLDER)}" in failure(None)


def test_of_a_driver_that_failed_the_task_shows_where_its_log_is():
    shown = application("FAILED", Container(False, SECOND), tracking_url="http://rm:8088/app")
    where = f"YARN has the driver's log: yarn logs -applicationId {NAME}, and http://rm:8088/app\n"
    lines = YarnPlace(Manager(shown, Container(False))).last_lines(handle_of())
    assert lines == [where]
    assert YarnPlace(Manager(AWAY)).last_lines(handle_of()) == []
    assert YarnPlace(Manager(None)).last_lines(handle_of()) == []


def test_yarn_runs_a_driver_once_unless_the_user_wants_more():
    """A second attempt is not granted, so it is no danger."""
    conf = submission_conf({"spark.yarn.tags": "mine, yours", "a": 1}, FOLDER)
    assert conf == {
        "a": "1",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.submit.waitAppCompletion": "false",
        "spark.yarn.tags": f"mine,yours,airflow_occ,{attempt_tag(FOLDER)}",
    }
    wanted = submission_conf({"spark.yarn.maxAppAttempts": 3}, FOLDER)
    assert wanted["spark.yarn.maxAppAttempts"] == "3"


def test_each_attempt_has_a_tag_that_yarn_keeps_as_it_is():
    tags = {attempt_tag(folder) for folder in ("a", "A", "a,b", "\u00e4", "x" * 999)}
    assert len(tags) == 5
    assert all(tag == tag.lower() and tag.isascii() and "," not in tag for tag in tags)
    assert max(map(len, tags)) <= 100
