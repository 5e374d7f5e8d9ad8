"""What a snapshot and a refresh cost on a real S3 server, for short and for long timelines."""

from __future__ import annotations

import math

import fsspec
import pytest

from airflow_occ_provider.embedded.versitygw import EmbeddedVersitygw
from airflow_occ_provider.storage.table import HudiTable
from tests.bench.tables import add_instant, instants, make_table
from tests.faulty_proxy import FaultyProxy

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        not EmbeddedVersitygw.is_available(), reason="Go, which builds versitygw, is missing"
    ),
]
BUCKET = "lake"
KEYS_OF_PAGE = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedVersitygw(tmp_path_factory.mktemp("s3")) as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture(scope="module")
def proxy(server):
    with FaultyProxy(server.url) as running:
        yield running


@pytest.fixture
def open_table(server, proxy):
    def open_one(name):
        file_system = fsspec.filesystem(
            "s3",
            key=server.KEY,
            secret=server.SECRET,
            endpoint_url=proxy.url,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        return HudiTable(f"s3a://{BUCKET}/{name}", file_system)

    return open_one


@pytest.mark.parametrize("layout", [1, 2])
@pytest.mark.parametrize("size", [100, 10_000])
def test_a_snapshot_is_two_requests_and_its_pages_and_a_refresh_is_one(
    server, proxy, open_table, size, layout
):
    name = f"t_{size}_{layout}"
    timeline = make_table(server.folder / "buckets" / BUCKET / name, size, layout)
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


def test_what_is_missing_costs_one_request(server, proxy, open_table):
    make_table(server.folder / "buckets" / BUCKET / "bare", 1)
    snapshot = open_table("bare").snapshot()
    (instant,) = snapshot.timeline
    for read in (snapshot.heartbeats, snapshot.has_history, lambda: snapshot.markers(instant.time)):
        proxy.counted()
        assert not read()
        assert len(proxy.counted()) == 1


def test_a_file_is_read_in_one_request(server, proxy, open_table):
    make_table(server.folder / "buckets" / BUCKET / "read", 1)
    snapshot = open_table("read").snapshot()
    proxy.counted()
    assert snapshot.reader.commit(snapshot.timeline.instants[0])
    (read,) = proxy.counted()
    assert read.method == "GET"
