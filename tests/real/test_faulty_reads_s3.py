"""Readers of a table on S3 while requests fail: retried, bounded, told, and nothing concluded."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.hooks.hudi_table import HudiTableHook
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.storage.conflicts import verdicts
from airflow_occ_provider.storage.watch import WriterWatch
from airflow_occ_provider.storage.writers import pending_writers
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from tests.bench.tables import add_instant, instants, make_table
from tests.services.clouds import NEEDS_VERSITYGW
from tests.support.faulty_proxy import Fault, FaultyProxy
from tests.support.stores import BUCKET

pytestmark = [pytest.mark.real, pytest.mark.nightly, NEEDS_VERSITYGW]
SIZE, ROUNDS = 20, 10
((OURS, COMPLETED, _),) = instants(1, SIZE)
PATIENCE_S = 240
TRIES = 5  # of botocore, for one request
FAILING = tuple(fault for fault in Fault if fault is not Fault.SLOW)


@pytest.fixture
def proxy(versitygw):
    with FaultyProxy(versitygw.url, seed=7, slow_s=0.5) as running:
        yield running


@pytest.fixture
def timeline(versitygw, request):
    """The timeline of a table with 20 completed instants and a live writer."""
    root = versitygw.folder / "buckets" / BUCKET / request.node.name
    folder = make_table(root, SIZE)
    done, *_ = sorted(
        add_instant(folder, OURS, COMPLETED, "commit"), key=lambda one: "_" not in one.name
    )
    done.unlink()
    (root / ".hoodie" / ".heartbeat").mkdir()
    (root / ".hoodie" / ".heartbeat" / OURS).touch()
    return folder


@pytest.fixture
def open_table(proxy, timeline, request, open_in_versitygw):
    return lambda timeout_s=60.0: open_in_versitygw(proxy, request.node.name, timeout_s=timeout_s)


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_a_request_that_fails_once_is_made_again(open_table, proxy, fault):
    table = open_table()
    proxy.plan(fault, at=lambda one: not one.is_listing)
    proxy.plan(fault, at=lambda one: one.is_listing)
    snapshot = table.snapshot()
    assert len(snapshot.timeline.instants) == SIZE + 1
    assert proxy.faults == {fault: 2}
    assert len(proxy.counted()) <= 2 + 2


def test_nothing_is_concluded_from_failures(open_table, proxy):
    table = open_table()
    snapshot = table.snapshot()
    expected = verdicts(table, snapshot)
    watch, reads, failed = WriterWatch(table), 0, 0
    proxy.percent = 40.0
    for _ in range(ROUNDS):
        try:
            observed = watch.observe().writer(OURS)
            snapshot = table.snapshot(snapshot)
            (pending,) = pending_writers(table, snapshot)
            assert verdicts(table, snapshot) == expected
        except TableUnreadableError:
            failed += 1
            continue
        reads += 1
        assert (observed.fate, pending.live) == (Fate.ALIVE, True)
        assert pending.operation.instant.time == OURS
    requests, failures = len(proxy.counted()), proxy.faults.total()
    print(f"{reads} reads, {failed} errors, of {requests} requests {failures} failed")
    assert reads > failed


@pytest.mark.parametrize("fault", FAILING, ids=lambda fault: fault.name)
def test_an_outage_is_one_error_with_a_remedy_after_a_bounded_time(open_table, proxy, fault):
    table = open_table(timeout_s=10.0)
    snapshot = table.snapshot()
    proxy.kinds, proxy.percent = (fault,), 100.0
    began = time.monotonic()
    with pytest.raises(TableUnreadableError, match=r"test_an_outage.*hoodie.*Remedy: check") as caught:
        table.snapshot(snapshot)
    assert time.monotonic() - began < 30
    assert "\n" not in str(caught.value)
    proxy.percent = 0.0
    assert table.snapshot(snapshot).timeline.instants == snapshot.timeline.instants


def test_a_trigger_waits_for_the_end_of_an_outage(
    versitygw, proxy, timeline, open_table, monkeypatch, request
):
    extra = {"endpoint_url": proxy.url, "region_name": versitygw.REGION}
    monkeypatch.setenv("AIRFLOW_CONN_FAULTY", json.dumps({**versitygw.connection, "extra": extra}))
    told = []
    monkeypatch.setattr(HudiHeartbeatTrigger, "_log_retry", lambda _, error: told.append(str(error)))
    table = open_table().path
    trigger = HudiHeartbeatTrigger(
        table=table, storage_conn_id="faulty", instants=[OURS], until=["committed", "gone"], poll_s=0.5
    )

    async def first_event():
        waiting = asyncio.ensure_future(anext(trigger.run()))
        async with asyncio.timeout(PATIENCE_S):
            while not proxy.seen:  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.1)
            proxy.kinds, proxy.percent = (Fault.ERROR_500,), 100.0
            while not told or proxy.faults.total() < 3 * TRIES:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            assert not waiting.done()
            add_instant(timeline, OURS, COMPLETED, "commit")
            proxy.percent = 0.0
            return await waiting

    event = asyncio.run(first_event()).payload
    assert event["status"] == "reached"
    assert [writer["fate"] for writer in event["writers"]] == ["committed"]
    assert len(told) == 1
    assert "internal error" in told[0]
    assert len(HudiTableHook(table, "faulty").timeline().instants) == SIZE + 1
