"""The lease store of a bucket on a real S3 server, by the contract that all lease stores share."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from obstore.store import S3Store

from airflow_occ_provider.embedded.versitygw import EmbeddedVersitygw
from airflow_occ_provider.leases.storage.bucket import BucketObject
from airflow_occ_provider.leases.storage.shared_object import SupersededError
from airflow_occ_provider.leases.storage.store import StorageStore
from airflow_occ_provider.testing.lease_store import (  # noqa: F401 - the fixtures of the contract
    open_queue,
    other,
    queue,
    second,
    store,
)
from airflow_occ_provider.testing.lost_answers import LostAnswerContract
from airflow_occ_provider.testing.queue_contract import ExpiryContract, QueueContract
from airflow_occ_provider.testing.store_contract import StoreContract

pytestmark = [
    pytest.mark.real,
    pytest.mark.nightly,
    pytest.mark.skipif(
        not EmbeddedVersitygw.is_available(), reason="Go, which builds versitygw, is missing"
    ),
]
BUCKET = "leases"
RACES, RACERS = 60, 16
POLL_S = 0.2


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with EmbeddedVersitygw(tmp_path_factory.mktemp("s3")) as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture
def open_object(server):
    """Return a function that opens the same object as another process does."""
    key = f"{uuid.uuid4()}/queue.json"

    def open_one():
        bucket = S3Store(
            BUCKET,
            endpoint=server.url,
            region=server.REGION,
            access_key_id=server.KEY,
            secret_access_key=server.SECRET,
            client_options={"allow_http": True, "timeout": "5s", "connect_timeout": "2s"},
            retry_config={"max_retries": 0},
        )
        return BucketObject(bucket, key, f"s3://{BUCKET}/{key}")

    return open_one


@pytest.fixture
def open_store(open_object):
    return lambda: StorageStore(open_object(), POLL_S)


class TestStore(StoreContract):
    pass


class TestQueue(QueueContract):
    pass


class TestExpiry(ExpiryContract):
    pass


class TestLostAnswers(LostAnswerContract):
    pass


@pytest.mark.parametrize("is_new", [True, False])
def test_of_racing_writes_of_one_tag_one_succeeds(open_object, is_new):
    """Otherwise two would hold one lease: a server without exact conditions fails here."""
    clients = [open_object() for _ in range(RACERS)]
    with ThreadPoolExecutor(RACERS) as pool:
        for race in range(RACES if not is_new else 1):
            tag = "" if is_new else clients[0].write(b"%d" % race, clients[0].read("").tag)
            start = threading.Barrier(RACERS)

            def write(number, tag=tag, start=start, race=race):
                start.wait(30)
                try:
                    return clients[number].write(b"%d of %d" % (number, race), tag)
                except SupersededError:
                    return None

            winners = [one for one in pool.map(write, range(RACERS)) if one]
            assert len(winners) == 1
