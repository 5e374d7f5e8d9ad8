"""Pytest fixtures of the embedded services.

Enable them in a ``conftest.py``::

    pytest_plugins = ["airflow_occ_provider.embedded.pytest_plugin"]
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_occ_provider.embedded.metastore import EmbeddedMetastore
from airflow_occ_provider.embedded.s3proxy import EmbeddedS3proxy
from airflow_occ_provider.embedded.stack import EmbeddedStack
from airflow_occ_provider.embedded.zookeeper import EmbeddedZookeeper


@pytest.fixture(scope="session")
def hudi_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStack]:
    """Run a ZooKeeper and prepare ``spark-submit``, for the test session."""
    with EmbeddedStack(tmp_path_factory.mktemp("hudi_stack")) as stack:
        yield stack


@pytest.fixture
def embedded_zookeeper(hudi_stack: EmbeddedStack) -> EmbeddedZookeeper:
    """Return the session's running ZooKeeper."""
    return hudi_stack.zookeeper


@pytest.fixture(scope="session")
def embedded_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMetastore]:
    """Run a Hive metastore for the test session; its locks expire after 60 s."""
    with EmbeddedMetastore(tmp_path_factory.mktemp("metastore"), lock_timeout_s=60) as metastore:
        yield metastore


@pytest.fixture(scope="session")
def embedded_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedS3proxy]:
    """Run an S3 server for the test session; each test makes its own buckets."""
    with EmbeddedS3proxy(tmp_path_factory.mktemp("s3")) as store:
        yield store


@pytest.fixture
def spark_submit_environment(hudi_stack: EmbeddedStack) -> dict[str, str]:
    """Return a copy of the environment in which ``spark-submit`` runs Hudi jobs."""
    return dict(hudi_stack.environment)
