"""What ``airflow hudi doctor --lock-conn-id`` finds: locks that the writers do not have in common."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from airflow_occ_provider.hudi.doctor.finding import Severity, naive_ms
from airflow_occ_provider.hudi.doctor.locks import (
    LockUse,
    OtherLock,
    fragile_lock,
    other_lock_files,
    other_lock_options,
    unshared_lock,
)
from airflow_occ_provider.hudi.writer.options import (
    LOCK_PROVIDER,
    METASTORE_LOCK_PROVIDER,
    ZOOKEEPER_LOCK_PROVIDER,
)
from airflow_occ_provider.hudi.writer.storage_lock import FILE_LOCK_PROVIDER, STORAGE_LOCK_PROVIDER
from airflow_occ_provider.reading import doctor
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.spelling import spell_time
from tests.support.table_properties import table_properties
from tests.unit.commands import run_command
from tests.unit.timed_writes import DAY, checks, write

A, B = write("100000", "103000", "a"), write("101000", "102000", "b")
LATER = write("110000", "111000", "a")
NODE = "/hudi/locks/t"
LOCK = "hoodie.write.lock"


def at(time):
    return naive_ms(f"{DAY}{time}000")


def test_writes_at_the_same_time_without_the_lock_are_found():
    (found,) = unshared_lock(LockUse(NODE, 0, at("090000")), [A, B, LATER], ())
    assert (found.check, found.severity) == ("unused_lock", Severity.WARNING)
    assert found.instants == (A.instant.time, B.instant.time)
    assert f"{NODE} was requested 0 times since 2026-11-24 09:00:00 UTC" in found.evidence
    assert "at least 3 used another lock, or none" in found.evidence
    assert "airflow hudi conf" in found.remedy


def test_a_write_that_was_too_short_to_count_may_have_run_beside_another():
    short = write("101000", "101001", "b")
    (found,) = unshared_lock(LockUse(NODE, 0, at("090000")), [LATER, short, A], ())
    assert found.instants == (A.instant.time, short.instant.time)
    assert "at least 2 used another lock" in found.evidence


@pytest.mark.parametrize(
    ("use", "writes"),
    [
        (LockUse(NODE, 3, at("090000")), [A, B, LATER]),  # each requested it
        (LockUse(NODE, 0, at("090000")), [A, LATER]),  # a single writer needs none
        (LockUse(NODE, 0, at("102930")), [A, B, LATER]),  # by the clocks, A may be older than the node
    ],
    ids=["all", "one_after_another", "older"],
)
def test_writes_that_prove_nothing_about_the_lock(use, writes):
    assert not checks(unshared_lock(use, writes, ()))


def test_a_lock_without_a_node_is_only_a_notice():
    (found,) = unshared_lock(LockUse(NODE, 0, None), [A, B], ())
    assert found.severity is Severity.NOTICE
    assert "if the lock service has lost its data since" in found.evidence


def test_signed_writes_beyond_the_requests_used_another_lock():
    signed = {A.instant.time, LATER.instant.time}
    (found,) = unshared_lock(LockUse(NODE, 1, at("090000")), [A, LATER], signed)
    assert (found.check, found.severity) == ("other_lock", Severity.WARNING)
    assert "2 writes of HudiWriteOperator" in found.evidence
    assert not checks(unshared_lock(LockUse(NODE, 2, at("090000")), [A, LATER], signed))


def test_files_of_other_locks_count_as_far_as_the_timeline_goes():
    def found(time):
        return list(other_lock_files([OtherLock("/t/.hoodie/lock", at(time))], [A, B, LATER]))

    assert not found("095900")
    (old,) = found("103000")
    assert (old.severity, "before the youngest write" in old.evidence) == (Severity.NOTICE, True)
    (recent,) = found("110500")
    assert (recent.check, recent.severity) == ("other_lock", Severity.WARNING)
    assert "until 2026-11-24 11:05:00 UTC" in recent.evidence
    assert not list(other_lock_files([OtherLock("/t/.hoodie/lock", at("110500"))], []))


def given(provider, **options):
    keys = {f"{LOCK}.{key.replace('__', '.')}": value for key, value in options.items()}
    return {LOCK_PROVIDER: provider, **keys}


CONNECTION = given(
    ZOOKEEPER_LOCK_PROVIDER, zookeeper__url="zk1:2181,zk2:2181/hudi", zookeeper__base_path="/locks"
)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        CONNECTION,
        {f"{LOCK}.zookeeper.url": "zk2:2181, zk3:2181/hudi"},
        {f"{LOCK}.zookeeper.lock_key": "t"},
        {f"{LOCK}.wait_time_ms": "1"},
    ],
    ids=["none", "all", "a_server_in_common", "key", "time"],
)
def test_properties_of_the_same_lock(properties):
    assert not checks(other_lock_options({"hoodie.table.name": "t", **properties}, CONNECTION))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (LOCK_PROVIDER, FILE_LOCK_PROVIDER),
        (f"{LOCK}.zookeeper.url", "zk1:2181"),
        (f"{LOCK}.zookeeper.url", "zk9:2181/hudi"),
        (f"{LOCK}.zookeeper.base_path", "/elsewhere"),
        (f"{LOCK}.zookeeper.lock_key", "trips"),
        (f"{LOCK}.hivemetastore.table", "t"),
    ],
)
def test_properties_of_another_lock_are_named(key, value):
    properties = {"hoodie.table.name": "t", **CONNECTION, key: value}
    (found,) = other_lock_options(properties, CONNECTION)
    assert (found.check, found.severity) == ("other_lock", Severity.WARNING)
    assert f"{key}={value}, and the connection has {CONNECTION.get(key, '')}" in found.evidence


class View:
    """A view of a lock in ZooKeeper."""

    path = NODE

    def __init__(self, times):
        self.times_requested = lambda: times
        self.counted_since_ms = lambda: None
        self.is_closed = False

    def close(self):
        self.is_closed = True


def connection(view, **options):
    return SimpleNamespace(
        options=lambda _: {LOCK_PROVIDER: ZOOKEEPER_LOCK_PROVIDER, **options},
        commit_lock=lambda *_: view,
    )


def test_the_view_of_the_lock_is_closed_and_its_count_is_used(table, monkeypatch):
    asked = []
    monkeypatch.setattr(doctor.locks, "unshared_lock", lambda use, *_: asked.append(use) or ())
    view = View(7)
    assert examine(table, lock=connection(view)) == ()
    assert asked == [LockUse(NODE, 7, None)]
    assert view.is_closed
    assert examine(table, lock=connection(None)) == ()
    assert examine(table, lock=connection(View(None))) == ()
    assert len(asked) == 1


@pytest.fixture
def run(monkeypatch, capsys, folder):
    def run(*options, conn_type="hudi_zookeeper_lock", host="zk:1", code=0):
        extra = {"hudi_lock_options": "\n".join(options)} if options else {}
        value = {"conn_type": conn_type, "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
        run_command("doctor", str(folder.parent), "--lock-conn-id", "lock", "-o", "json", code=code)
        return json.loads(capsys.readouterr().out)

    return run


def test_a_metastore_shows_nothing_of_the_past_and_is_not_asked(run):
    (finding,) = run(conn_type="hudi_metastore_lock", host="thrift://nowhere:1")
    assert finding["check"] == "fragile_lock"


def test_the_command_finds_another_lock_in_the_properties(run, folder):
    named = table_properties(write__lock__zookeeper__lock_key="trips")
    (folder / "hoodie.properties").write_text(named)
    (found,) = run(f"{LOCK_PROVIDER}={FILE_LOCK_PROVIDER}", code=3)
    assert found["check"] == "other_lock"
    assert list(found) == ["check", "severity", "instants", "evidence", "remedy"]


def test_the_last_use_of_the_storage_lock_is_known(folder, table):
    lock = connection(None, **{LOCK_PROVIDER: STORAGE_LOCK_PROVIDER})
    use = doctor.lock_use(lock, table, lock.options(""))
    assert use == LockUse(f"{table.path}/.hoodie/.locks/table_lock.json", 0, 0)
    (folder / ".locks").mkdir()
    content = {"expired": True, "validUntil": at("100000"), "owner": "0f-17"}
    (folder / ".locks" / "table_lock.json").write_text(json.dumps(content))
    assert doctor.lock_use(lock, table, lock.options("")).since_ms == at("100000")
    (other,) = doctor.other_locks(table, {LOCK_PROVIDER: ZOOKEEPER_LOCK_PROVIDER})
    assert spell_time(other.last_ms) == "2026-11-24 10:00:00 UTC"
    assert not list(doctor.other_locks(table, lock.options("")))
    content |= {"expired": False, "validUntil": 2 * at("100000")}
    (folder / ".locks" / "table_lock.json").write_text(json.dumps(content))
    assert doctor.lock_use(lock, table, lock.options("")) is None


def test_the_default_connection_is_examined_if_it_exists(monkeypatch, capsys, folder):
    def doctored(value, code=0):
        monkeypatch.setenv("AIRFLOW_CONN_HUDI_LOCK_DEFAULT", json.dumps(value))
        run_command("doctor", str(folder.parent), "-o", "json", code=code)
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    run_command("doctor", str(folder.parent), "-o", "json", code=0)
    assert json.loads(capsys.readouterr().out) == []
    named = table_properties(write__lock__zookeeper__lock_key="trips")
    (folder / "hoodie.properties").write_text(named)
    options = {"hudi_lock_options": f"{LOCK_PROVIDER}={FILE_LOCK_PROVIDER}"}
    zookeeper = {"conn_type": "hudi_zookeeper_lock", "host": "127.0.0.1:1"}
    (found,), _ = doctored({**zookeeper, "extra": options}, code=3)
    assert found["check"] == "other_lock"
    _, warning = doctored({**zookeeper, "extra": {"connection_timeout_ms": 500}})
    assert "the lock is not examined: " in warning


def test_only_a_lock_in_a_metastore_may_be_lost_in_silence():
    (finding,) = fragile_lock({LOCK_PROVIDER: METASTORE_LOCK_PROVIDER})
    assert (finding.check, finding.severity) == ("fragile_lock", Severity.NOTICE)
    assert not checks(fragile_lock({LOCK_PROVIDER: ZOOKEEPER_LOCK_PROVIDER}))
