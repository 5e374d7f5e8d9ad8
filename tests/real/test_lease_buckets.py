"""The lease store of a bucket on real servers, by the contract that all lease stores share."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import replace

import pytest

from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.storage.address import AzureAccess, GcsAccess, S3Access
from airflow_occ_provider.leases.storage.backend import StorageStore, open_shared_object
from airflow_occ_provider.leases.storage.objects import check_conditions
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
from tests.services.azurite import EmbeddedAzurite
from tests.services.fake_gcs import EmbeddedFakeGcs
from tests.services.gcs_xml import gcs_xml
from tests.services.versitygw import EmbeddedVersitygw

BUCKET = "leases"
POLL_S = 0.2
pytestmark = [pytest.mark.real, pytest.mark.nightly]


@contextmanager
def on_s3(kind, folder):
    with kind(folder) as server:
        server.make_bucket(BUCKET)
        yield f"s3a://{BUCKET}", S3Access(server.KEY, server.SECRET, endpoint=server.url)


@contextmanager
def on_azure(folder):
    with EmbeddedAzurite(folder) as server:
        server.make_bucket(BUCKET)
        root = f"wasb://{BUCKET}@{server.HOST}"
        yield root, AzureAccess(server.ACCOUNT, key=server.KEY, endpoint=server.url)


@contextmanager
def on_gcs(folder):
    with EmbeddedFakeGcs(folder) as server, gcs_xml(server.port) as url:
        server.make_bucket(BUCKET)
        yield f"gs://{BUCKET}", GcsAccess(endpoint=url)


SERVERS = {
    "versitygw": (EmbeddedVersitygw, lambda folder: on_s3(EmbeddedVersitygw, folder)),
    "azurite": (EmbeddedAzurite, on_azure),
    "fake-gcs": (EmbeddedFakeGcs, on_gcs),
}


@pytest.fixture(scope="module", params=SERVERS)
def reached(request, tmp_path_factory):
    """The root of a bucket, and the way to it."""
    server, opened = SERVERS[request.param]
    if not server.is_available():
        pytest.skip(f"what builds or runs {request.param} is missing")
    with opened(tmp_path_factory.mktemp(request.param)) as root_and_access:
        yield root_and_access


@pytest.fixture
def open_object(reached):
    """Return a function that opens the same object as another process does."""
    root, access = reached
    folder = uuid.uuid4()
    return lambda: open_shared_object(f"{root}/{folder}", access, timeout_s=5.0)


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


def test_its_conditions_are_exact(open_object):
    """Otherwise two would hold one lease."""
    shared = open_object()
    assert "one was carried out each time" in check_conditions(shared)
    assert shared.read("").tag == ""


def test_wrong_credentials_and_a_missing_bucket_are_told(reached, open_object):
    root, access = reached
    if isinstance(access, GcsAccess):
        pytest.skip("the server knows no credentials")
    missing = open_shared_object(root.replace(BUCKET, "missing", 1), access)
    with pytest.raises(ConfigurationError, match=r"lease_root: .*Remedy: create the bucket"):
        check_conditions(missing)
    wrong = {"key": "d3Jvbmc="} if isinstance(access, AzureAccess) else {"secret": "wrong"}
    refused = open_shared_object(root, replace(access, **wrong))
    with pytest.raises(ConfigurationError, match=r"credentials: .* refuses them") as told:
        check_conditions(refused)
    assert next(iter(wrong.values())) not in str(told.value)


def test_a_server_that_is_away_is_told_in_time():
    away = open_shared_object("s3://lake", S3Access("k", "s", endpoint="http://127.0.0.1:9"))
    with pytest.raises(LockUnreachableError, match=r"s3://lake/queue\.json did not answer"):
        check_conditions(away)


def test_a_server_whose_if_match_is_not_atomic_is_refused(tmp_path):
    with on_s3(EmbeddedS3proxy, tmp_path) as (root, access):
        shared = open_shared_object(root, access)
        with pytest.raises(ConfigurationError, match=r"If-Match is not atomic.*Remedy: keep the leases"):
            check_conditions(shared, race_s=60.0)
