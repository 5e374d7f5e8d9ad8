"""A lock connection of another package, which an entry point names."""

from __future__ import annotations

import json
import logging
from contextlib import closing

import pytest

from airflow_occ_provider.connection_form import GROUP
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.hudi.writer.storage_lock import FILE_LOCK_PROVIDER
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.provider_info import get_provider_info
from tests.support.installed import install
from tests.unit.bucket_form import bucket_lock


@pytest.fixture(autouse=True)
def package(tmp_path, monkeypatch):
    install(tmp_path, "bucket_locks", GROUP, "bucket_lock = tests.unit.bucket_form:bucket_lock")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def lock(monkeypatch):
    def lock(host="lake", conn_type="bucket_lock", **extra):
        value = {"conn_type": conn_type, "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
        return lock_hook("lock")

    return lock


def test_airflow_is_given_its_form_and_its_module():
    info = get_provider_info()
    assert bucket_lock() in info["connection-types"]
    (hooks,) = info["hooks"]
    assert "tests.unit.bucket_lock" in hooks["python-modules"]


def test_its_leases_and_hudis_lock_are_used(lock):
    hook = lock(lease_ttl_s=30)
    assert hook.terms() == Terms(30_000, 600_000)
    assert hook.test_connection() == (True, "The bucket answers.")
    assert hook.options("/lake/trips")[LOCK_PROVIDER] == FILE_LOCK_PROVIDER
    with closing(hook.leases()) as queue:
        ticket = queue.request(Request("i", Owner(("d", "r", "t")), (Scope("/t"),), 60_000))
        queue.ensure_held(ticket)
        with closing(lock().leases()) as other:
            assert [queued.request.id for queued in other.requests()] == ["i"]


@pytest.mark.parametrize("lease_ttl_s", [0, 29])
def test_a_lease_that_three_answers_outlast_is_refused(lock, lease_ttl_s):
    with pytest.raises(ConfigurationError, match=r"lease_ttl_s: .* enter 30 or more"):
        lock(lease_ttl_s=lease_ttl_s).terms()
    assert lock(lease_ttl_s=29, connection_timeout_ms=9000).terms() == Terms(29_000, 600_000)


def test_a_missing_bucket_is_refused_by_the_connections_name(lock):
    with pytest.raises(ConfigurationError, match="connection 'lock', host: is empty"):
        lock("").validate()


def test_hudis_lock_may_be_in_another_service(lock):
    hook = lock(hudi_lock_options=f"{LOCK_PROVIDER}=com.example.Lock")
    assert hook.options("/lake/trips") == {LOCK_PROVIDER: "com.example.Lock"}
    assert hook.commit_lock("/lake/trips", "trips") is None


def test_its_name_is_offered_if_a_connection_is_missing():
    with pytest.raises(
        ConfigurationError, match=r"'Hudi lock \(ZooKeeper\)' or .* or 'Hudi lock \(bucket\)'"
    ):
        lock_hook("none")


def test_its_type_is_offered_for_a_connection_that_is_no_lock(lock):
    with pytest.raises(ConfigurationError, match=r"'hudi_zookeeper_lock' or .* or 'bucket_lock'"):
        lock(conn_type="http")


@pytest.mark.parametrize(
    "named", ["missing_package:form", "tests.unit.bucket_form:missing", "builtins:dict"]
)
def test_a_package_that_is_broken_takes_no_other_with_it(package, lock, caplog, named):
    install(package, "another", GROUP, f"a_lock = {named}")
    with caplog.at_level(logging.WARNING):
        assert bucket_lock() in get_provider_info()["connection-types"]
    assert f"The lock connection {named} is left out: " in caplog.text
    assert lock().test_connection()[0]


def test_the_types_of_this_package_look_at_no_other(package, lock, caplog):
    install(package, "another", GROUP, "a_lock = missing_package:form")
    with caplog.at_level(logging.WARNING):
        lock(str(package), "hudi_storage_lock")
    assert caplog.text == ""
