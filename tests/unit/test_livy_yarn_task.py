"""A task whose connection names a Livy and its ResourceManager: recorded answers, no Spark."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs

import pytest

from airflow_occ_provider.attempts.submitter import Ended, Handle, Running, Unseen
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.livy import LivyService
from airflow_occ_provider.hooks.submitters import follower, service_of
from airflow_occ_provider.submitters import livy as submitter
from airflow_occ_provider.submitters import livy_yarn
from airflow_occ_provider.submitters.livy import Livy
from airflow_occ_provider.submitters.livy_yarn import LivyOnYarn
from airflow_occ_provider.submitters.spark_submit import Flag
from tests.unit import test_livy_task as on_server
from tests.unit.test_livy import PROTECTED, RecordedLivy, serving
from tests.unit.test_livy_task import CHECKED, END, REQUESTED, deferred, event_of, posted, resume
from tests.unit.test_livy_task import run_folder as input_of
from tests.unit.test_record import Store
from tests.unit.test_table import T1, C, add
from tests.unit.test_yarn_clients import NAME, RUNNING, Server

FIELD = "yarn_resourcemanager_webapp_address"
_HEAD = "Container: c on localhost:1\nLogAggregationType: LOCAL\n"


class Yarn(Server):
    """Both of YARN's servers, with one application once a batch is there.

    :param livy: the server of the batches.
    """

    def __init__(self, livy):
        super().__init__()
        self.livy, self.state, self.log = livy, ("RUNNING", "UNDEFINED", "RUNNING"), ""
        self.container = NAME.replace("application", "container") + "_01_000001"
        self.answers["/ws/v1/cluster/apps"] = self.apps
        self.answers[f"/ws/v1/cluster/apps/{NAME}"] = lambda _: self.told({"app": self.app})
        self.answers[f"/ws/v1/cluster/apps/{NAME}/state"] = self.kills
        node = f"/ws/v1/node/containers/{self.container}"
        self.answers[node] = lambda _: self.told({"container": {"state": self.state[2]}})
        self.answers[f"{node}/logs/stderr"] = lambda _: self.logged("stderr", "")
        self.answers[f"{node}/logs/stdout"] = lambda _: self.logged("stdout", self.log)

    @property
    def app(self):
        pages = f"{self.url}/node/containerlogs/{self.container}/me"
        state, final, _ = self.state
        changed = {"state": state, "finalStatus": final, "amContainerLogs": pages}
        return {**json.loads(RUNNING)["app"], **changed}

    def apps(self, query):
        (tag,) = parse_qs(query)["applicationTags"]
        names = [one["name"] for one in self.livy.batches.values()]
        is_there = any(name == tag or name.startswith(f"{tag}_") for name in names)
        return self.told({"apps": {"app": [self.app]} if is_there else {}})

    def kills(self, _):
        self.state = ("KILLED", "KILLED", "EXITED_WITH_FAILURE")
        return self.told({})

    def commits(self, folder, store):
        self.state = ("FINISHED", "SUCCEEDED", "DONE")
        self.log = PROTECTED + REQUESTED + CHECKED + END
        add(folder, f"{T1}_{C}.commit", identity=store["hudi_write"]["identity"])

    def told(self, content):
        return 200, json.dumps(content).encode(), {}

    def logged(self, name, text):
        body = f"{_HEAD}LogType:{name}\nLogLength:{len(text)}\nLogContents:\n{text}\nEnd of LogType"
        return 200, body.encode(), {}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(submitter, "_LOOK_S", 0.01)
    monkeypatch.setattr(livy_yarn, "_LOOK_S", 0.01)
    monkeypatch.setattr("airflow_occ_provider.submitters.livy_api._PAUSES_S", ())
    with on_server.quick_trigger(monkeypatch):
        yield


@pytest.fixture
def livy():
    with serving(RecordedLivy()) as one:
        one.begins = False
        yield one


@pytest.fixture
def yarn(livy):
    one = Yarn(livy)
    yield one
    one.close()


@pytest.fixture
def connection(livy, yarn, monkeypatch):
    def make(**extra):
        value = {"conn_type": "livy", "host": "127.0.0.1", "port": livy.server_port, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_MY_LIVY", json.dumps(value))

    make(**{FIELD: yarn.url})
    return make


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def start(folder, queue, connection, store, tmp_path):
    return on_server.starter("my_livy", folder, store, tmp_path)


def test_a_task_defers_while_its_application_runs_and_finds_its_commit(start, yarn, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    assert wait.trigger.driver["application"] == NAME
    assert wait.trigger.driver["resource_managers"] == [yarn.url]
    yarn.commits(folder, store)
    event = event_of(wait.trigger)
    assert (event["status"], event["stop"]) == ("ended", None)
    assert [kept[:2] for kept in event["facts"]["instants"]] == [[T1, "commit"]]
    assert resume(start, wait, event)["instant"] == T1
    (kept,) = store["hudi_write"]["attempts"]
    assert (kept["end"], kept["log_read"], kept["settled"]) == ("exit code 0", True, True)
    assert not input_of(folder, store).exists()


def test_a_task_that_keeps_its_slot_follows_the_application(start, livy, yarn, folder, store):
    make = livy.add

    def added(*given, **more):
        batch = make(*given, **more)
        yarn.commits(folder, store)
        return batch

    livy.add = added
    task, context = start(deferrable=False)
    assert task.execute(context)["instant"] == T1


def test_ending_a_deferred_task_kills_its_application_and_removes_its_input(start, yarn, folder, store):
    task, context = start()
    wait = deferred(task.execute, context)
    asyncio.run(wait.trigger.on_kill())
    assert yarn.state[0] == "KILLED"
    assert not list(input_of(folder, store).iterdir())
    assert follower(Handle.from_json(wait.trigger.driver)).poll(
        Handle.from_json(wait.trigger.driver)
    ) == Ended(-9)


def test_a_later_try_follows_the_batch_whose_worker_died(start, livy):
    task, context = start()
    first = deferred(task.execute, context)
    task, context = start(2)
    assert deferred(task.execute, context).trigger.driver == first.trigger.driver
    assert len(posted(livy)) == 1


def test_a_handle_is_followed_in_its_cluster_whatever_the_connection_names_now(start, yarn, connection):
    task, context = start()
    handle = Handle.from_json(deferred(task.execute, context).trigger.driver)
    connection()
    assert follower(handle, listing_s=5.0).poll(handle) == Running()
    assert isinstance(follower(handle), LivyOnYarn)
    assert yarn.url in service_of(handle)
    of_a_process = Handle("livy", "x", {**handle.facts, "resource_managers": ()})
    assert isinstance(follower(of_a_process), Livy)


def test_without_the_field_a_batch_in_yarn_is_refused_with_its_name(start, livy, connection):
    connection()
    make = livy.add
    livy.add = lambda name, _: make(name, "running", appId="application_1_1")
    task, context = start()
    with pytest.raises(ConfigurationError, match=rf"conn_id: .*application_1_1.*{FIELD}"):
        task.execute(context)
    assert livy.batches == {}


@pytest.mark.parametrize(
    ("extra", "given", "named"),
    [
        ({FIELD: "rm:8088"}, {}, "yarn_resourcemanager_webapp_address: .*not a web address"),
        ({}, {"conf": {"spark.yarn.maxAppAttempts": "2"}}, "conf spark.yarn.maxAppAttempts: "),
    ],
)
def test_what_cannot_be_followed_is_refused_before_it_is_queued(
    start, livy, yarn, connection, extra, given, named
):
    connection(**{FIELD: yarn.url, **extra})
    task, context = start(**given)
    with pytest.raises(ConfigurationError, match=named):
        task.execute(context)
    assert not posted(livy)


def test_several_resource_managers_and_none(connection):
    connection(**{FIELD: "http://rm1:8088, http://rm2:8088"})
    drivers = on_server.hook.StagedDrivers(LivyService("my_livy"), "/lake/t")
    one = drivers.follower(Flag())
    assert one.yarn.manager.addresses == ("http://rm1:8088", "http://rm2:8088")
    unknown = Handle("livy", "x", {"resource_managers": ["http://127.0.0.1:1"], "application": NAME})
    assert isinstance(one.poll(unknown), Unseen)
    connection()
    assert isinstance(
        on_server.hook.StagedDrivers(LivyService("my_livy"), "/lake/t").follower(Flag()), Livy
    )
