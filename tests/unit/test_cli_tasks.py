"""The tasks that ``airflow hudi timeline | writers | conflicts | ghosts | top`` name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.cli import table as table_commands
from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.hooks.zookeeper_lock import HudiZookeeperLockHook
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.task.run import site
from tests.golden.table_archive import unpack
from tests.support.memory_store import MemoryStore
from tests.unit import airflow_database
from tests.unit.commands import run_command

LIVE = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0" / "live_direct.zip"
PENDING = {"writers": "time", "conflicts": "time", "ghosts": "instant"}
TASK = ("ours", "run", "write")


@pytest.fixture
def run(capsys):
    def run(*arguments):
        run_command(*arguments)
        return capsys.readouterr().out

    return run


@pytest.fixture
def path(tmp_path):
    path = unpack(LIVE, tmp_path / "live")
    for heartbeat in (path / ".hoodie" / ".heartbeat").iterdir():
        heartbeat.touch()  # so that the writes are rivals
    return str(path)


@pytest.fixture
def database():
    airflow_database.create()
    yield
    airflow_database.drop()


@pytest.fixture
def queue(monkeypatch):
    nodes = MemoryStore()
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", "hudi-zookeeper-lock://zk:1")
    monkeypatch.setattr(HudiZookeeperLockHook, "leases", lambda self: Queue(nodes))
    return Queue(nodes)


def announce(queue, path, instants, owner, number=0, try_number=1):
    scopes = (Scope(path, Mode.SHARED),)
    ticket = queue.request(Request(f"q{number}", owner, scopes, 60_000, incarnation=try_number))
    queue.announce(ticket, instants)


def shown(run, command, path):
    printed = json.loads(run(command, path, "--output", "json"))
    return {described[PENDING[command]]: described["task"] for described in printed}


@pytest.mark.parametrize("command", PENDING)
def test_a_pending_write_without_a_known_task_has_none(run, path, command):
    tasks = shown(run, command, path)
    assert tasks
    assert set(tasks.values()) == {None}
    assert " task " in run(command, path)


@pytest.mark.parametrize("command", PENDING)
def test_a_pending_write_is_named_by_what_its_task_published(run, path, database, command):
    first, second, *_ = shown(run, command, path)
    airflow_database.push(*TASK, hudi_table={"table": path}, hudi_instants=[first])
    other = {"hudi_table": {"table": "/u"}, "hudi_instants": [second]}
    airflow_database.push("ours", "elsewhere", "write", **other)
    airflow_database.push("ours", "broken", "write", hudi_table="/t", hudi_instants={"a": 1})
    tasks = shown(run, command, path)
    assert tasks[first] == {
        "dag_id": "ours",
        "run_id": "run",
        "task_id": "write",
        "map_index": -1,
        "try_number": None,
        "site": None,
        "text": "ours / run / write",
    }
    assert [task for time, task in tasks.items() if time != first] == [None] * (len(tasks) - 1)
    assert "ours / run / write" in run(command, path, "--output", "plain")


@pytest.mark.parametrize("command", PENDING)
def test_a_pending_write_is_named_by_its_request_in_the_queue(run, path, queue, command):
    first, second, *_ = shown(run, command, path)
    announce(queue, path, [first], Owner(("d", "r", "t", "3"), site="blue"), 0, try_number=2)
    announce(queue, path, [second], Owner(("d", "r2"), "lease"), 1)
    tasks = shown(run, command, path)
    assert tasks[first]["text"] == "d / r / t / 3 (try 2)"
    assert (tasks[first]["map_index"], tasks[first]["site"]) == (3, "blue")
    assert tasks[second]["text"] == "d / r2 / lease (try 1)"


def test_a_rival_is_named_beside_the_write_that_loses_to_it(run, path, queue):
    first, second, *_ = shown(run, "writers", path)
    announce(queue, path, [first], Owner(("d", "r", "t")))
    announce(queue, path, [second], Owner(("d", "r2", "t")), 1)
    conflicts = json.loads(run("conflicts", path, "--output", "json"))
    for write in conflicts:
        rivals = {rival["rival"]: rival["task"] for rival in write["conflicts"]}
        assert {time for time, task in rivals.items() if task is None} <= {
            other["time"] for other in conflicts if other["task"] is None
        }
    named = [rival["task"] for write in conflicts for rival in write["conflicts"] if rival["task"]]
    assert {task["text"] for task in named} == {"d / r / t (try 1)", "d / r2 / t (try 1)"}


@pytest.mark.parametrize("command", PENDING)
def test_a_queue_that_does_not_answer_hides_nothing_else(path, monkeypatch, capsys, command):
    def away(self):
        raise LockUnreachableError("ZooKeeper zk:1 does not answer", remedy="wait")

    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", "hudi-zookeeper-lock://zk:1")
    monkeypatch.setattr(HudiZookeeperLockHook, "leases", away)
    run_command(command, path, "--output", "json")
    printed = capsys.readouterr()
    assert json.loads(printed.out)
    assert printed.err == "Warning: the queue names no task: ZooKeeper zk:1 does not answer\n"
    with pytest.raises(SystemExit, match="does not answer"):
        run_command(command, path, "--lock-conn-id", "hudi_lock_default")


@pytest.mark.parametrize(("map_index", "task"), [(-1, "t"), (0, "t / 0"), (12, "t / 12")])
def test_the_timeline_names_the_task_of_a_signature(run, path, monkeypatch, map_index, task):
    signature = Signature("identity", "d", "r", "t", map_index, 2)
    describe = table_commands.describe_instant

    def signed(*arguments, **options):
        return describe(*arguments, **options) | {"extra": signature.options()}

    assert "d / r" not in run("timeline", path)
    monkeypatch.setattr(table_commands, "describe_instant", signed)
    assert f"d / r / {task} (try 2)" in run("timeline", path, "--output", "plain")
    (first, *_) = json.loads(run("timeline", path, "--output", "json"))
    assert (first["task"]["map_index"], first["task"]["try_number"]) == (map_index, 2)


def test_top_names_the_tasks_and_their_states(run, path, queue, database):
    first, second, *_ = shown(run, "writers", path)
    airflow_database.push(*TASK, hudi_table={"table": path}, hudi_instants=[first])
    with create_session() as session:
        session.query(TaskInstance).update({"state": "running"})
    announce(queue, path, [], Owner(TASK, site=site()))
    announce(queue, path, [second], Owner(("ours", "unknown", "write"), site=site()), 1)
    announce(queue, path, [], Owner(TASK, site="another"), 2)
    described = json.loads(run("top", path, "--output", "json"))
    assert [line["task_state"] for line in described["queue"]] == ["running", None, None]
    tasks = {write["instant"]: write["task"] for write in described["writers"]}
    assert tasks[first]["text"] == "ours / run / write"
    assert tasks[second]["text"] == "ours / unknown / write (try 1)"
    printed = run("top", path, "--output", "plain")
    assert printed.count("task: running") == 1
    assert "task: None" not in printed
    assert "ours / run / write" in printed.split("Writers", 1)[1]
