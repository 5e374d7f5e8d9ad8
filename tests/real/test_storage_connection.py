"""The connection ``hudi_storage_lock`` on real stores, with an Airflow connection's credentials."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.hooks.hudi_lock import lock_hook
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from tests.services.azurite import EmbeddedAzurite
from tests.services.versitygw import EmbeddedVersitygw

pytestmark = pytest.mark.real


def exact(store):
    missing = pytest.mark.skipif(
        not store.is_available(), reason=f"what runs {store.__name__} is missing"
    )
    return pytest.param(store, marks=[pytest.mark.nightly, missing])


@pytest.fixture
def hook(request, tmp_path, monkeypatch):
    with request.param(tmp_path / "store") as server:
        server.make_bucket("lake")
        lock = {"conn_type": "hudi_storage_lock", "host": server.table("lake", "leases")}
        lock["extra"] = {"storage_conn_id": "lake"}
        monkeypatch.setenv("AIRFLOW_CONN_LOCK", json.dumps(lock))
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(server.connection))
        yield lock_hook("lock")


@pytest.mark.parametrize(
    "hook", [exact(one) for one in (EmbeddedVersitygw, EmbeddedAzurite)], indirect=True
)
def test_leases_lie_in_a_bucket_that_is_exact(hook):
    ok, message = hook.test_connection()
    assert ok, message
    assert "/leases/queue.json: in " in message
    with closing(hook.leases()) as queue:
        ticket = queue.request(Request("i", Owner(("d", "r", "t")), (Scope("/t"),), 60_000))
        queue.ensure_held(ticket)
        with closing(lock_hook("lock").leases()) as other:
            assert [one.request.id for one in other.requests()] == ["i"]


@pytest.mark.parametrize("hook", [EmbeddedS3proxy], indirect=True)
def test_a_server_whose_conditions_are_not_atomic_is_refused(hook):
    ok, message = hook.test_connection()
    assert not ok, message
    assert "lease_root: s3://lake/leases/" in message
    assert "cannot keep leases" in message
