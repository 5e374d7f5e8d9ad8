"""A new lock backend is one file and one form."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from airflow_occ_provider import connection_form, provider_info
from airflow_occ_provider.hooks import hudi_lock
from airflow_occ_provider.hudi.writer.options import LOCK_PROVIDER
from airflow_occ_provider.leases.lease import Terms
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from tests.unit.bucket_lock import PROVIDER, bucket_lock


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for module in (hudi_lock, provider_info):
        monkeypatch.setattr(module, "LOCK_FORMS", (*connection_form.LOCK_FORMS, bucket_lock))


def connection(monkeypatch, **extra):
    value = {"conn_type": "bucket_lock", "host": "lake", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(value))
    return hudi_lock.lock_hook("lock")


def test_airflow_is_given_its_form_and_its_module():
    info = provider_info.get_provider_info()
    assert bucket_lock() in info["connection-types"]
    (hooks,) = info["hooks"]
    assert "tests.unit.bucket_lock" in hooks["python-modules"]


def test_its_leases_and_hudis_lock_are_used(monkeypatch):
    hook = connection(monkeypatch, lease_ttl_s=30)
    assert hook.terms() == Terms(30_000, 600_000)
    assert hook.test_connection() == (True, "The bucket answers.")
    assert hook.options("/lake/trips") == {
        LOCK_PROVIDER: PROVIDER,
        "hoodie.write.lock.filesystem.path": "/lake/trips/.hoodie/lock",
    }
    with closing(hook.leases()) as queue:
        ticket = queue.request(Request("i", Owner(("d", "r", "t")), (Scope("/t"),), 60_000))
        queue.ensure_held(ticket)
        with closing(connection(monkeypatch).leases()) as other:
            assert [one.request.id for one in other.requests()] == ["i"]


def test_hudis_lock_may_be_in_another_service(monkeypatch):
    hook = connection(monkeypatch, hudi_lock_options=f"{LOCK_PROVIDER}=com.example.Lock")
    assert hook.options("/lake/trips") == {LOCK_PROVIDER: "com.example.Lock"}
    assert hook.commit_lock("/lake/trips", "trips") is None


def test_its_name_is_offered_if_a_connection_is_missing():
    with pytest.raises(Exception, match=r"'Hudi lock \(ZooKeeper\)' or .* or 'Hudi lock \(bucket\)'"):
        hudi_lock.lock_hook("none")
