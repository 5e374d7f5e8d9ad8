"""Shared by tests of real services: an S3 server whose conditional writes are exact."""

from __future__ import annotations

import fsspec
import pytest

from airflow_occ_provider.storage.table import HudiTable
from tests.services.versitygw import EmbeddedVersitygw
from tests.support.stores import BUCKET


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory):
    """The server, with a bucket; a test needs the mark ``NEEDS_VERSITYGW``."""
    with EmbeddedVersitygw(tmp_path_factory.mktemp("s3")) as running:
        running.make_bucket(BUCKET)
        yield running


@pytest.fixture
def open_in_versitygw(versitygw):
    """Return a function that opens a table of the bucket through a proxy of the server."""

    def open_one(proxy, name, **options):
        file_system = fsspec.filesystem(
            "s3",
            key=versitygw.KEY,
            secret=versitygw.SECRET,
            endpoint_url=proxy.url,
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        return HudiTable(f"s3a://{BUCKET}/{name}", file_system, **options)

    return open_one
