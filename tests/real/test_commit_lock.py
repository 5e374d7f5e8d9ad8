"""Hudi's own commit lock, read from a real ZooKeeper, and the command line that shows it."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from airflow.cli.cli_parser import get_parser
from kazoo.client import KazooClient

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperCommitLock
from tests.support.commit_locks import TableLocks
from tests.support.writers import LOCK_BASE_PATH, Writer, commit_lock_held, inflight, wait_for

pytestmark = pytest.mark.real

TABLE = "s3://lake/trips"


@pytest.fixture
def zookeeper(embedded_zookeeper):
    client = KazooClient(hosts=embedded_zookeeper.hosts)
    client.start(timeout=15)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def view(embedded_zookeeper):
    with closing(
        ZookeeperCommitLock(ZookeeperAccess(embedded_zookeeper.hosts), "/view/locks", "t")
    ) as view:
        yield view


@pytest.fixture
def run(monkeypatch, capsys, embedded_zookeeper):
    value = {"conn_type": "hudi_zookeeper_lock", "host": embedded_zookeeper.hosts}
    value["extra"] = {"lease_root": "/cli/leases"}
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", json.dumps(value))

    def run(*arguments):
        args = get_parser().parse_args(["hudi", *arguments])
        args.func(args)
        return capsys.readouterr().out

    return run


def add_entry(zookeeper, start, data):
    path = f"/view/locks/t/_c_{start}000000-0000-4000-8000-000000000000-lock-"
    return zookeeper.create(path, data, ephemeral=True, sequence=True, makepath=True)


def test_entries_are_in_the_order_of_their_numbers(zookeeper, view):
    assert view.entries() == ()
    assert view.times_requested() == 0
    assert zookeeper.exists("/view") is None
    first = add_entry(zookeeper, "ff", b"application_id=local-17")
    add_entry(zookeeper, "00", b"10.0.0.7")
    add_entry(zookeeper, "88", b"application_id=Unknown")
    zookeeper.create("/view/locks/t/foreign", b"")
    entries = view.entries()
    assert [entry.owner for entry in entries] == ["local-17", "10.0.0.7", ""]
    assert entries[0].number < entries[1].number
    assert entries[0].since_ms == zookeeper.exists(first).ctime
    zookeeper.delete(first)
    assert [entry.owner for entry in view.entries()] == ["10.0.0.7", ""]
    zookeeper.delete("/view", recursive=True)


def test_requests_are_counted_since_the_nearest_node_was_created(zookeeper, view):
    assert view.counted_since_ms() is None
    zookeeper.create("/view", b"")
    assert view.counted_since_ms() == zookeeper.exists("/view").ctime
    assert zookeeper.exists("/view/locks") is None
    zookeeper.ensure_path("/view/locks/t")
    assert view.counted_since_ms() == zookeeper.exists("/view/locks/t").ctime
    zookeeper.delete("/view", recursive=True)


def test_each_request_of_the_lock_is_counted_once(zookeeper, view):
    zookeeper.ensure_path("/view/locks/t")
    counted = []
    for _ in range(3):
        entry = add_entry(zookeeper, "aa", b"")
        counted.append(view.times_requested())
        zookeeper.delete(entry)
        counted.append(view.times_requested())
    assert counted == [1, 1, 2, 2, 3, 3]
    zookeeper.delete("/view", recursive=True)


def test_a_real_writer_that_waits_for_its_commit_is_listed(hudi_stack, tmp_path, run):
    table = tmp_path / "t"
    with closing(
        ZookeeperCommitLock(ZookeeperAccess(hudi_stack.zookeeper.hosts), LOCK_BASE_PATH, "t")
    ) as lock:
        before = lock.times_requested()
        named = {"hoodie.write.application.id": "w17"}
        writer = Writer(hudi_stack, table, hudi_options=named).start()
        wait_for("the write", lambda: inflight(table), writer)
        with commit_lock_held(hudi_stack.zookeeper.hosts):
            wait_for("the wait for the lock", lambda: len(lock.entries()) == 2, writer)
            waiter = lock.entries()[1]
            found = json.loads(run("locks", "show", str(table), "-o", "json"))
            printed = run("locks", "show", str(table))
        assert writer.wait().outcome is Outcome.COMMITTED, writer.log[-3000:]
        assert lock.times_requested() == before + 5  # four for one write of Hudi 1.2.0, and ours
        assert lock.entries() == ()
    assert waiter.owner == "w17"
    assert found["path"] == f"{LOCK_BASE_PATH}/t"
    assert [one["owner"] for one in found["waiters"]] == [waiter.owner]
    assert 0 <= found["waiters"][0]["age_ms"] <= found["holder"]["age_ms"] < 300_000
    assert waiter.owner in printed
    assert "The lock is free." in run("locks", "show", str(table))


def test_a_lock_in_a_metastore_is_listed(embedded_metastore, monkeypatch, run):
    value = {"conn_type": "hudi_metastore_lock", "host": embedded_metastore.uris}
    monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", json.dumps(value))
    with closing(TableLocks(embedded_metastore.uris)) as locks:
        held, waits = (locks.lock("trips", user) for user in ("a", "b"))
        found = json.loads(run("locks", "show", "/lake/Trips/", "--lock-key", "trips", "-o", "json"))
        locks.unlock(held[0])
        left = run("locks", "show", "/lake/trips", "--lock-key", "trips")
        locks.unlock(waits[0])
    assert (held[1], waits[1], found["path"]) == (True, False, "default.trips")
    assert found["holder"]["owner"] == "a@airflow"
    assert 0 <= found["holder"]["age_ms"] < 300_000
    assert [(one["owner"], one["since_ms"]) for one in found["waiters"]] == [("b@airflow", None)]
    assert "b@airflow" in left  # the waiter has not asked again: the lock is free, and it still waits


def test_leases_are_listed_and_released(run):
    with closing(lock_hook("hudi_lock_default").leases()) as queue:
        asked = [
            Request(name, Owner((name, "run", "task", "-1")), (Scope.of(TABLE, None),), 60_000)
            for name in ("first", "second")
        ]
        first, second = map(queue.request, asked)
        found = json.loads(run("leases", "list", "s3a://lake/trips", "-o", "json"))
        assert [(one["id"], one["holds"]) for one in found] == [("first", True), ("second", False)]
        assert found[0]["token"] == first.order_token
        with pytest.raises(SystemExit, match="so its process lives, or died just now"):
            run("leases", "release", TABLE, "--id", "first", "-y")
        released = run("leases", "release", TABLE, "--id", "first", "-y", "--force")
        assert "released first" in released
        assert queue.status(second).held
        with pytest.raises(SystemExit, match="no request first is in the queue"):
            run("leases", "release", TABLE, "--id", "first", "-y")
        assert queue.release(second)
    assert json.loads(run("leases", "list", "-o", "json")) == []
