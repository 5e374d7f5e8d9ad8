"""The pytest plugin with the contract of lease stores.

A backend author adds it to ``conftest.py`` and says how a client of a store is opened::

    pytest_plugins = ["airflow_occ_provider.testing.lease_store"]

    @pytest.fixture
    def open_store(tmp_path):
        return lambda: MyStore(tmp_path)

    @pytest.fixture
    def open_unreachable_store():  # optional
        return lambda: MyStore("/nothing/answers/here", timeout_s=0.1)

The tests are the classes of ``store_contract`` (the six calls), ``queue_contract`` and
``lost_answers`` (the queue over them); the author's tests subclass each, as ``TestMyStore``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

pytest.register_assert_rewrite(
    "airflow_occ_provider.testing.lost_answers",
    "airflow_occ_provider.testing.queue_contract",
    "airflow_occ_provider.testing.store_contract",
)

from airflow_occ_provider.leases.store import Store  # noqa: E402 - after the registration
from airflow_occ_provider.testing.queues import LossyQueue  # noqa: E402


@pytest.fixture
def open_store() -> Callable[[], Store]:
    """Return a function that opens another client of one empty store."""
    raise NotImplementedError(
        "define the fixture open_store, see airflow_occ_provider.testing.lease_store"
    )


@pytest.fixture
def open_unreachable_store() -> Callable[[], Store]:
    """Return a function that opens a client of a store that does not answer."""
    pytest.skip("the fixture open_unreachable_store is not defined")


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Iterator[Store]:
    """Return a client of the store."""
    with closing(open_store()) as opened:
        yield opened


@pytest.fixture
def second(open_store: Callable[[], Store]) -> Iterator[Store]:
    """Return another client of the same store."""
    with closing(open_store()) as opened:
        yield opened


@pytest.fixture
def open_queue(open_store: Callable[[], Store]) -> Iterator[Callable[[], LossyQueue]]:
    """Return a function that opens the queue as another process does."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(LossyQueue(open_store())))


@pytest.fixture
def queue(open_queue: Callable[[], LossyQueue]) -> LossyQueue:
    """Return the queue of one process."""
    return open_queue()


@pytest.fixture
def other(open_queue: Callable[[], LossyQueue]) -> LossyQueue:
    """Return the queue of another process."""
    return open_queue()
