"""What a snapshot and a refresh cost on a real S3 server, for short and for long timelines."""

from __future__ import annotations

import math

import pytest

from tests.bench.tables import add_instant, instants, make_table
from tests.services.clouds import NEEDS_VERSITYGW
from tests.support.faulty_proxy import FaultyProxy
from tests.support.stores import BUCKET
from tests.write_cost import measure

pytestmark = [pytest.mark.real, pytest.mark.nightly, NEEDS_VERSITYGW]
KEYS_OF_PAGE, MOST_REQUESTS = 1000, 9


@pytest.fixture(scope="module")
def proxy(versitygw):
    with FaultyProxy(versitygw.url) as running:
        yield running


@pytest.fixture
def open_table(proxy, open_in_versitygw):
    return lambda name: open_in_versitygw(proxy, name)


@pytest.mark.parametrize("layout", [1, 2])
@pytest.mark.parametrize("size", [100, 10_000])
def test_a_snapshot_is_two_requests_and_its_pages_and_a_refresh_is_one(
    versitygw, proxy, open_table, size, layout
):
    name = f"t_{size}_{layout}"
    timeline = make_table(versitygw.folder / "buckets" / BUCKET / name, size, layout)
    table = open_table(name)
    proxy.counted()
    snapshot = table.snapshot()
    seen = proxy.counted()
    assert len(snapshot.timeline.instants) == size
    assert [one.is_listing for one in seen if not one.is_page] == [False, True]
    pages = 1 + sum(one.is_page for one in seen)
    keys = 3 * size + (layout == 1)  # there hoodie.properties are in the same folder
    assert pages == math.ceil(keys / KEYS_OF_PAGE)
    snapshot = table.snapshot(snapshot)  # in layout 1 with the properties: now their time is known
    for one in instants(2, size):
        add_instant(timeline, *one, layout=layout)
        proxy.counted()
        snapshot = table.snapshot(snapshot)
        (only,) = proxy.counted()
        assert only.is_listing
    assert len(snapshot.timeline.instants) == size + 2


def test_what_is_missing_costs_one_request(versitygw, proxy, open_table):
    make_table(versitygw.folder / "buckets" / BUCKET / "bare", 1)
    snapshot = open_table("bare").snapshot()
    (instant,) = snapshot.timeline
    for read in (snapshot.heartbeats, snapshot.has_history, lambda: snapshot.markers(instant.time)):
        proxy.counted()
        assert not read()
        assert len(proxy.counted()) == 1


def test_a_file_is_read_in_one_request(versitygw, proxy, open_table):
    make_table(versitygw.folder / "buckets" / BUCKET / "read", 1)
    snapshot = open_table("read").snapshot()
    proxy.counted()
    assert snapshot.reader.commit(snapshot.timeline.instants[0])
    (read,) = proxy.counted()
    assert read.method == "GET"


def test_an_uncontended_write_makes_few_requests(tmp_path):
    _, requests = measure(tmp_path)
    assert 0 < len(requests) <= MOST_REQUESTS, list(map(str, requests))
