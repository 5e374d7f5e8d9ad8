"""``airflow hudi locks`` with the lock providers that keep the lock in a file, or show nothing."""

from __future__ import annotations

import json
import os
import time

import pytest
from airflow.cli.cli_parser import get_parser

PROVIDERS = "org.apache.hudi.client.transaction.lock"


@pytest.fixture
def run(monkeypatch, capsys, folder):
    def run(*options, output="json"):
        extra = {"hudi_lock_options": "\n".join(options)}
        value = {"conn_type": "hudi_zookeeper_lock", "host": "zk:1", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
        command = ["hudi", "locks", "show", str(folder.parent), "--lock-conn-id", "lock", "-o", output]
        args = get_parser().parse_args(command)
        args.func(args)
        printed = capsys.readouterr().out
        return json.loads(printed) if output == "json" else printed

    return run


def provider(name):
    return f"hoodie.write.lock.provider={PROVIDERS}.{name}"


def test_a_lock_file_shows_its_age_but_not_its_owner(run, folder):
    file_system = provider("FileSystemBasedLockProvider")
    assert run(file_system)["holder"] is None
    assert "The lock is free." in run(file_system, output="table")
    (folder / "lock").touch()
    os.utime(folder / "lock", (time.time() - 90, time.time() - 90))
    found = run(file_system)
    assert found["path"] == str(folder / "lock")
    assert found["holder"]["owner"] is None
    assert 90_000 <= found["holder"]["age_ms"] < 150_000
    printed = run(file_system, output="table")
    assert "unknown" in printed
    assert "approximate" in printed


def test_a_lock_file_may_lie_elsewhere_and_expire(run, folder, tmp_path):
    elsewhere = tmp_path / "locks"
    options = (
        provider("FileSystemBasedLockProvider"),
        f"hoodie.write.lock.filesystem.path={elsewhere}",
        "hoodie.write.lock.filesystem.expire=1",
    )
    (folder / "lock").touch()
    assert run(*options)["holder"] is None
    elsewhere.mkdir()
    (elsewhere / "lock").touch()
    holder = run(*options)["holder"]
    assert holder["until_ms"] == holder["since_ms"] + 60_000
    os.utime(elsewhere / "lock", (1, 1))
    assert run(*options)["holder"] is None


@pytest.mark.parametrize(
    ("expired", "left_ms", "held"),
    [(False, 600_000, True), (True, 600_000, False), (False, -600_000, False)],
)
def test_the_storage_based_lock_shows_its_owner(run, folder, expired, left_ms, held):
    storage, until_ms = provider("StorageBasedLockProvider"), round(time.time() * 1000) + left_ms
    assert run(storage)["holder"] is None
    (folder / ".locks").mkdir()
    content = {"expired": expired, "validUntil": until_ms, "owner": "0f-17"}
    (folder / ".locks" / "table_lock.json").write_text(json.dumps(content))
    holder = run(storage)["holder"]
    assert (holder is not None) is held
    if holder:
        assert (holder["owner"], holder["until_ms"], holder["age_ms"]) == ("0f-17", until_ms, None)
        assert "0f-17" in run(storage, output="table")


def test_a_lock_file_that_is_cut_off_is_an_error(run, folder):
    (folder / ".locks").mkdir()
    (folder / ".locks" / "table_lock.json").write_text('{"expired": fal')
    with pytest.raises(SystemExit, match=r"hudi locks show: .*table_lock\.json is not a lock file"):
        run(provider("StorageBasedLockProvider"))


def test_it_says_where_nothing_can_be_seen(run):
    assert run(provider("InProcessLockProvider"))["seen"] is False
    printed = run(provider("InProcessLockProvider"), output="table")
    assert (
        f"{PROVIDERS}.InProcessLockProvider: the holder of this provider's lock is not visible"
        in printed
    )


def test_a_connection_without_a_service_shows_the_lock_beside_the_table(folder, monkeypatch, capsys):
    value = {"conn_type": "hudi_storage_lock", "host": "/srv/leases", "extra": {"lock_expire_min": 2}}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
    (folder / "lock").touch()
    command = ["hudi", "locks", "show", str(folder.parent), "--lock-conn-id", "lock", "-o", "json"]
    args = get_parser().parse_args(command)
    args.func(args)
    found = json.loads(capsys.readouterr().out)
    assert found["provider"].endswith("FileSystemBasedLockProvider")
    assert found["path"] == str(folder / "lock")
    assert found["holder"]["until_ms"] == found["holder"]["since_ms"] + 120_000


@pytest.mark.parametrize("named", [True, False])
def test_a_lock_connection_is_tested_by_name_or_by_default(monkeypatch, capsys, tmp_path, named):
    value = json.dumps({"conn_type": "hudi_storage_lock", "host": str(tmp_path)})
    monkeypatch.setenv("AIRFLOW_CONN_LAKE" if named else "AIRFLOW_CONN_HUDI_LOCK_DEFAULT", value)
    args = get_parser().parse_args(["hudi", "locks", "test", *(["lake"] if named else [])])
    args.func(args)
    assert capsys.readouterr().out.startswith("lake: " if named else "hudi_lock_default: ")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"conn_type": "hudi_storage_lock", "host": "relative"}, "relative"),
        ({"conn_type": "hudi_storage_lock", "host": "/dev/null/leases"}, "/dev/null/leases"),
        ({"conn_type": "http", "host": "example"}, "is not a lock"),
        (None, "does not exist"),
    ],
)
def test_a_lock_connection_that_does_not_serve_is_a_failed_command(monkeypatch, value, reason):
    if value:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))
    args = get_parser().parse_args(["hudi", "locks", "test", "lake"])
    with pytest.raises(SystemExit, match=f"hudi locks test: .*{reason}"):
        args.func(args)
