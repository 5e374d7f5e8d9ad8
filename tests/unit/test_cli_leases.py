"""``airflow hudi leases``, over a queue in memory."""

from __future__ import annotations

import getpass
import io
import json
import re
import socket
import time

import pytest
from airflow.cli.cli_parser import get_parser
from airflow.models.log import Log
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session

from airflow_occ_provider.cli import leases
from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.task.run import site
from tests.support.memory_store import MemoryStore
from tests.support.patched import only_in
from tests.unit import airflow_database

TABLE, OTHER = "s3://lake/trips", "s3://lake/zones"
BASE_MS = round(time.time() * 1000) - 3_600_000


@pytest.fixture
def nodes():
    return MemoryStore(now_ms=lambda: BASE_MS)


@pytest.fixture
def line(nodes, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", "hudi-zookeeper-lock://zk:1")
    monkeypatch.setattr(HudiZookeeperLockHook, "leases", lambda self: Queue(nodes))
    return Queue(nodes)


@pytest.fixture
def run(capsys):
    def run(*arguments):
        args = get_parser().parse_args(["hudi", "leases", *arguments])
        args.func(args)
        return capsys.readouterr().out

    return run


def ask(line, name, *scopes):
    request = Request(name, Owner((f"dag_{name}", "run", "task")), scopes, 60_000)
    return line.request(request)


def exclusive(table, *partitions):
    return Scope.of(table, partitions or None)


def test_the_list_shows_places_and_blockers(line, run):
    first = ask(line, "a", exclusive(TABLE, "dt=1", "dt=2"))
    ask(line, "b", exclusive(TABLE, "dt=3"))
    ask(line, "c", Scope(TABLE, Mode.SHARED))
    found = json.loads(run("list", "s3a://lake/trips/", "-o", "json"))
    assert [(one["place"], one["id"], one["holds"]) for one in found] == [
        *((1, "a", True), (2, "b", True), (3, "c", False)),
    ]
    assert [one["id"] for one in found[2]["waits_for"]] == ["a", "b"]
    assert found[2]["waits_for"][0]["owner"]["path"] == ["dag_a", "run", "task"]
    assert found[0]["scopes"] == [{"mode": "exclusive", "partitions": ["dt=1", "dt=2"]}]
    assert found[2]["scopes"] == [{"mode": "shared", "partitions": None}]
    assert found[0]["token"] == first.order_token
    tokens = [int(one["token"]) for one in found]
    assert tokens == sorted(tokens)
    assert {one["since_ms"] for one in found} == {BASE_MS}
    assert {one["table"] for one in found} == {TABLE}


def test_a_request_may_wait_because_of_another_of_its_tables(line, run):
    ask(line, "a", exclusive(OTHER))
    ask(line, "b", exclusive(TABLE), exclusive(OTHER))
    (one,) = json.loads(run("list", TABLE, "-o", "json"))
    assert (one["place"], one["holds"], one["waits_for"][0]["id"]) == (1, False, "a")
    everywhere = json.loads(run("list", "-o", "json"))
    places = [(one["table"], one["place"], one["id"]) for one in everywhere]
    assert places == [(TABLE, 1, "b"), (OTHER, 1, "a"), (OTHER, 2, "b")]
    assert f"waits for 1 of {OTHER}" in run("list", TABLE)
    assert "waits for 1 " in run("list", OTHER)


def test_the_list_as_a_table_is_readable(line, run):
    assert run("list") == "The queue is empty.\n"
    assert json.loads(run("list", "-o", "json")) == []
    ask(line, "a", exclusive(TABLE, *(f"dt={day:02}" for day in range(30))))
    ask(line, "b", exclusive(TABLE))
    printed = run("list")
    assert printed.splitlines()[0] == TABLE
    for text in ("dag_a / run / task", "waits for 1 ", "the whole table", "dt=00", "and 25 more"):
        assert text in printed
    assert "dt=05" not in printed
    assert max(map(len, printed.splitlines())) < 150


def test_the_list_grows_linearly_with_the_queue(line, run):
    for number in range(20):
        ask(line, f"q{number:02}", exclusive(TABLE))
    found = json.loads(run("list", "-o", "json"))
    assert [len(one["waits_for"]) for one in found] == [0, 1, 2, 3, 4, *[5] * 15]
    assert found[19]["waits_for_more"] == 14
    assert "waits for 1, 2, 3, 4, 5, and 14 more" in run("list")


@pytest.mark.parametrize("name", ["stray", "aaaaaaaa~bbbbbbbb~1.2~"])
def test_a_request_of_an_unknown_release_is_shown_and_may_be_released(nodes, line, run, name):
    nodes.create(name, b"?")
    ask(line, "a", exclusive(TABLE))
    found = json.loads(run("list", TABLE, "-o", "json"))
    assert [(one["id"], one["holds"]) for one in found if one["id"] != "a"] == [(name, True)]
    assert f"released {name} of unknown request" in run("release", TABLE, "--id", name, "--yes")
    assert set(nodes.stamps()) == {one.name for one in line.requests(TABLE)}


def test_a_release_lets_the_next_one_in(line, run):
    held, waits = ask(line, "a", exclusive(TABLE)), ask(line, "b", exclusive(TABLE))
    assert not line.status(waits).held
    assert "released a of dag_a / run / task" in run("release", TABLE, "--id", "a", "--yes")
    assert line.status(waits).held
    assert not line.release(held)


@pytest.mark.parametrize(
    ("answer", "released"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)]
)
def test_a_release_names_its_risk_and_asks(line, monkeypatch, capsys, answer, released):
    ask(line, "a", exclusive(TABLE, "dt=1"))
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    args = get_parser().parse_args(["hudi", "leases", "release", TABLE, "--id", "a"])
    if released:
        args.func(args)
    else:
        with pytest.raises(SystemExit, match="leases release: nothing was released"):
            args.func(args)
    asked = capsys.readouterr().out
    for text in (
        "dag_a / run",
        "dt=1",
        "may be writing",
        "commit check",
        "serializable",
        "lost updates",
    ):
        assert text in asked
    assert bool(line.requests(TABLE)) is not released


def test_a_living_holder_is_released_by_force_only(line, nodes, run, monkeypatch):
    held = ask(line, "a", exclusive(TABLE))
    nodes._now_ms = lambda: round(time.time() * 1000)
    line.renew(held)
    with pytest.raises(SystemExit, match=r"request a of dag_a.* renewed 0 s ago, .*--force"):
        run("release", TABLE, "--id", "a", "--yes")
    assert line.requests(TABLE)
    told = []

    def renews(seconds):
        assert seconds > 60 / 3  # the owner has renewed by then, and the request still blocks others
        with pytest.raises(LeaseLostError) as lost:
            line.renew(held)
        told.append(lost.value.message)
        assert line.requests(TABLE)

    only_in(monkeypatch, leases, "time", sleep=renews)
    assert "waiting 30 s" in run("release", TABLE, "--id", "a", "--yes", "--force")
    assert not line.requests(TABLE)
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    assert re.search(rf"it was released by force by {by} at 20\d\d-.* UTC$", told[0])


def test_a_request_that_its_owner_queues_anew_meanwhile_is_released(line, nodes, run, monkeypatch):
    nodes._now_ms = lambda: round(time.time() * 1000)
    request = Request("a", Owner(("dag", "run", "task")), (exclusive(TABLE),), 60_000)
    line.request(request)
    rival = ask(line, "b", exclusive(TABLE))
    only_in(monkeypatch, leases, "time", sleep=lambda _: line.request(request))
    assert "released a of dag / run / task" in run("release", TABLE, "--id", "a", "--yes", "--force")
    assert [queued.request.id for queued in line.requests(TABLE)] == ["b", "a"]
    assert line.status(rival).held


def test_the_list_shows_whether_an_owner_lives(line, nodes, run):
    alive, claimed = ask(line, "a", exclusive(TABLE, "1")), ask(line, "b", exclusive(TABLE, "2"))
    ask(line, "dead", exclusive(TABLE, "3"))
    service = Queue(nodes)
    service.requests()  # what it has read before does not hide the later renewals
    now_ms = round(time.time() * 1000)
    nodes._now_ms = lambda: now_ms - 5000
    line.renew(alive)
    line.renew(claimed, 600_000)
    renewed = [one.renewed_ms for one in service.requests()]
    assert renewed == [now_ms - 5000, now_ms - 5000, BASE_MS]
    first, second, third = json.loads(run("list", TABLE, "-o", "json"))
    assert [first["expires_ms"], second["expires_ms"]] == [now_ms + 55_000, now_ms + 595_000]
    assert [one["claimed"] for one in (first, second, third)] == [False, True, False]
    assert [one["task_state"] for one in (first, second, third)] == [None] * 3
    printed = run("list", TABLE)
    assert re.search(r"expired (59 min|1 h)", printed), "by how long ago this process began"
    for text in ("expires in 9 min", "kept for its next process", "not known"):
        assert text in printed


@pytest.fixture
def database():
    airflow_database.create()
    yield
    airflow_database.drop()


def test_airflows_database_knows_the_task_and_the_release(line, run, database):
    for run_id in ("run", "other", "mapped"):
        airflow_database.push("ours", run_id, "task")
    with create_session() as session:
        session.query(TaskInstance).update({"state": "deferred"})
    owners = [
        Owner(("ours", "run", "task"), "", site()),
        Owner(("ours", "other"), "task", site()),
        Owner(("ours", "mapped", "task", "1"), "", site()),
        Owner(("ours", "run", "task"), "", "another"),  # which may have a task of the same name
    ]
    for number, owner in enumerate(owners):
        line.request(Request(f"q{number}", owner, (exclusive(TABLE, str(number)),), 60_000))
    listed = json.loads(run("list", TABLE, "-o", "json"))
    assert [one["task_state"] for one in listed] == ["deferred", "deferred", None, None]
    assert "recorded in Airflow's audit log" in run("release", TABLE, "--id", "q1", "--yes")
    with create_session() as session:
        (entry,) = session.query(Log).filter_by(event="hudi_lease_released")
        assert (entry.dag_id, entry.run_id, entry.task_id) == ("ours", "other", "task")
        assert entry.owner == getpass.getuser()
        assert json.loads(entry.extra)["request"] == "q1"
    run("release", TABLE, "--id", "q3", "--yes")
    with create_session() as session:
        (entry,) = session.query(Log).filter_by(event="hudi_lease_released", dag_id=None)
        assert json.loads(entry.extra)["owner"] == "ours / run / task (site another)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("release", TABLE, "--id", "z", "-y"),
            f"leases release: no request z is in the queue of {TABLE}",
        ),
        (("release", OTHER, "--id", "a", "-y"), "no request a is in the queue"),
        (("release", "trips", "--id", "a"), "'trips' is not a path"),
        (
            ("list", "--lock-conn-id", "no_such"),
            "leases list: lock_conn_id: connection 'no_such' does not exist",
        ),
    ],
)
def test_errors_are_one_line(line, run, arguments, message):
    ask(line, "a", exclusive(TABLE))
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert len(line.requests(TABLE)) == 1
