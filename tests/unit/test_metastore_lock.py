from __future__ import annotations

import json
import socket
import sys
from contextlib import closing
from types import ModuleType

import pytest

from airflow_occ_provider.connection_form import metastore_lock
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER, METASTORE_LOCK_PROVIDER
from airflow_occ_provider.leases.metastore.access import Kerberos, MetastoreAccess
from airflow_occ_provider.leases.metastore.backend import expiry
from airflow_occ_provider.leases.metastore.client import MetastoreClient

PREFIX = "hoodie.write.lock."
CLOSED_PORT = "127.0.0.1:1"


@pytest.fixture
def connection(monkeypatch):
    def connection(host="thrift://hms1:9083,thrift://hms2", **extra):
        value = {"conn_type": "hudi_metastore_lock", "host": host, "extra": extra}
        value |= {name: extra.pop(name) for name in ("port",) if name in extra}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
        return lock_hook("lock")

    return connection


def test_the_connection_becomes_hudis_options(connection):
    options = connection(wait_time_ms="1000", num_retries=2).options("s3a://lake/Trips.v2/")
    assert options == {
        LOCK_PROVIDER: METASTORE_LOCK_PROVIDER,
        f"{PREFIX}hivemetastore.uris": "thrift://hms1:9083,thrift://hms2",
        f"{PREFIX}hivemetastore.database": "default",
        f"{PREFIX}hivemetastore.table": "trips_v2",
        f"{PREFIX}wait_time_ms": "1000",
        f"{PREFIX}heartbeat_interval_ms": "60000",
        f"{PREFIX}client.num_retries": "2",
    }


def test_database_and_table_may_be_those_of_a_fleet(connection):
    options = connection(database="lake", table="trips").options("/lake/t")
    assert options[f"{PREFIX}hivemetastore.database"] == "lake"
    assert options[f"{PREFIX}hivemetastore.table"] == "trips"


@pytest.mark.parametrize(
    ("host", "port", "uris", "addresses"),
    [
        ("hms1", None, "thrift://hms1", [("hms1", 9083)]),
        ("hms1", 9084, "thrift://hms1:9084", [("hms1", 9084)]),
        ("thrift://hms1:1, hms2:2", 9084, "thrift://hms1:1,thrift://hms2:2", [("hms1", 1), ("hms2", 2)]),
    ],
)
def test_addresses(connection, host, port, uris, addresses):
    hook = connection(host, port=port)
    assert hook.options("/t")[f"{PREFIX}hivemetastore.uris"] == uris
    assert hook.access.addresses == addresses


def test_the_forms_defaults_are_the_hooks(connection):
    fields = metastore_lock()["conn-fields"].items()
    defaults = {name: field["schema"].get("default") for name, field in fields}
    empty = connection()
    for given in (defaults, dict.fromkeys(defaults), dict.fromkeys(defaults, "")):
        filled = connection(**given)
        assert filled.options("/t") == empty.options("/t")
        assert filled.access == empty.access
        assert (
            filled.lease_backend.database == empty.lease_backend.database == defaults["lease_database"]
        )


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"host": ""}, "uris"),
        ({"host": "http://hms1:9083"}, "uris"),
        ({"host": "thrift://hms1:port"}, "uris"),
        ({"database": "my lake"}, "database"),
        ({"table": "T"}, "table"),
        ({"lease_database": "x" * 129}, "lease_database"),
        ({"wait_time_ms": "soon"}, "wait_time_ms"),
        ({"num_retries": -1}, "num_retries"),
        ({"lock_timeout_s": "5m"}, "lock_timeout_s"),
        ({"lock_timeout_s": 20, "connection_timeout_ms": 9000}, "lock_timeout_s"),
        ({"kerberos": "perhaps"}, "kerberos"),
    ],
)
def test_a_wrong_field_is_named_with_a_remedy(connection, fields, named):
    hook = connection(**{"host": CLOSED_PORT, "connection_timeout_ms": 300, **fields})
    with pytest.raises(ConfigurationError, match=rf"{named}.*Remedy: enter") as told:
        hook.validate()
    assert hook.test_connection() == (False, str(told.value))


@pytest.mark.parametrize(
    "fields",
    [
        {"lease_database": "default"},
        {"database": "airflow_occ_leases"},
        {
            "hudi_lock_options": f"{LOCK_PROVIDER}={METASTORE_LOCK_PROVIDER}\n"
            f"{PREFIX}hivemetastore.database=airflow_occ_leases"
        },
    ],
)
def test_leases_never_live_where_hudis_locks_do(connection, fields):
    hook = connection(CLOSED_PORT, connection_timeout_ms=300, **fields)
    with pytest.raises(ConfigurationError, match=r"lease_database: .* where Hudi locks.*Remedy"):
        hook.leases()
    assert not hook.test_connection()[0]


def test_an_unreachable_metastore_answers_the_test_button(connection):
    hook = connection(CLOSED_PORT, connection_timeout_ms=500)
    ok, message = hook.test_connection()
    assert not ok
    assert CLOSED_PORT in message
    assert "Remedy" in message
    with pytest.raises(LockUnreachableError):
        hook.leases()


def test_kerberos_without_its_clients_says_what_to_install(connection, monkeypatch):
    monkeypatch.setitem(sys.modules, "kerberos", None)
    hook = connection(CLOSED_PORT, kerberos=True, connection_timeout_ms=300)
    assert hook.access.kerberos.service == "hive"
    with pytest.raises(ConfigurationError, match=r"its extra kerberos"):
        hook.leases()


@pytest.mark.parametrize(
    ("told", "milliseconds"),
    [
        ("300s", 300_000),
        ("300", 300_000),
        ("5m", 300_000),
        ("2500ms", 2500),
        ("1h", 3_600_000),
        ("", 300_000),
        ("x", 300_000),
    ],
)
def test_the_metastores_time_out_is_read(connection, told, milliseconds):
    class Told:
        def setting(self, name):
            assert name == "hive.txn.timeout"
            return told

    assert connection().lease_backend.lock_timeout_ms(Told()) == milliseconds
    # A longer one of ours would be trusted after the server has dropped the lock.
    assert connection(lock_timeout_s=7, connection_timeout_ms=2000).lease_backend.lock_timeout_ms(
        Told()
    ) == min(7000, milliseconds)
    longer = connection(lock_timeout_s=7200).lease_backend.lock_timeout_ms(Told())
    assert longer == (milliseconds if told not in ("", "x") else 7_200_000)


def test_a_missing_ticket_is_reported(monkeypatch):
    class KrbError(Exception):
        pass

    def refuse(*_, **__):
        raise KrbError("no credentials cache")

    kerberos = ModuleType("kerberos")
    kerberos.KrbError, kerberos.authGSSClientInit = KrbError, refuse
    for name in ("AUTH_GSS_COMPLETE", "AUTH_GSS_CONTINUE", "GSS_C_MUTUAL_FLAG", "GSS_C_SEQUENCE_FLAG"):
        setattr(kerberos, name, 1)
    monkeypatch.setitem(sys.modules, "kerberos", kerberos)
    from puresasl import mechanisms

    monkeypatch.setattr(mechanisms, "kerberos", kerberos, raising=False)
    monkeypatch.setattr(mechanisms, "have_kerberos", True)
    monkeypatch.setitem(mechanisms.mechanisms, "GSSAPI", mechanisms.GSSAPIMechanism)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        access = MetastoreAccess(f"thrift://127.0.0.1:{server.getsockname()[1]}", 2.0, Kerberos())
        with pytest.raises(LockUnreachableError, match=r"no credentials cache.*Remedy"):
            MetastoreClient(access)


@pytest.mark.parametrize("call", ["leases", "terms", "validate", "test", "commit_lock"])
def test_without_its_client_every_call_says_what_to_install(connection, monkeypatch, call):
    for name in list(sys.modules):
        if name.startswith(("pymetastore", "airflow_occ_provider.leases.metastore")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymetastore", None)
    hook = connection(CLOSED_PORT, connection_timeout_ms=300)
    with pytest.raises(ConfigurationError, match=r"its extra hive"):
        getattr(hook, call)(*(("/lake/t", "t") if call == "commit_lock" else ()))
    assert "install airflow-occ-provider with its extra hive" in hook.test_connection()[1]


class Told:
    def __init__(self, **settings):
        self.settings = settings

    def setting(self, name):
        return self.settings.get(name.replace(".", "_"), "")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"hive_compactor_initiator_on": "false"}, "Warning: hive.compactor.initiator.on is false"),
        (
            {"hive_txn_manager": "org.apache.hadoop.hive.ql.lockmgr.DummyTxnManager"},
            "Warning: it has no",
        ),
        ({"hive_support_concurrency": "false"}, "Warning: it has no"),
        (
            {"hive_timedout_txn_reaper_interval": "180s"},
            "It drops a lock 300 s after its last heartbeat",
        ),
    ],
)
def test_the_check_says_what_removes_dead_locks(settings, expected):
    assert expiry(Told(**settings), 300_000).startswith(expected)


def test_heartbeats_too_rare_for_the_metastore_are_refused(connection):
    connection().lease_backend.refuse_rare_heartbeats(120_000)
    with pytest.raises(
        ConfigurationError, match=r"heartbeat_interval_ms: 60000 ms.*Remedy: enter .*39666"
    ):
        connection().lease_backend.refuse_rare_heartbeats(119_000)
    connection(heartbeat_interval_ms=1000).lease_backend.refuse_rare_heartbeats(3000)
