"""All clients at once over the metastore's locks: a slice of ``tests.crowd``."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter

import pytest

from airflow_occ_provider.leases.metastore.access import MetastoreAccess
from airflow_occ_provider.leases.metastore.client import MetastoreClient
from airflow_occ_provider.leases.metastore.lock_log import MetastoreLocks
from tests.crowd.locks import MemoryLocks
from tests.crowd.mutants import MUTANTS
from tests.crowd.run import run
from tests.crowd.witness import ViolationError

SEEN = ("granted", "let wait", "passed on", "zombies refused", "answers lost")


def run_until_seen(least, opened, lifetime_s, **given):
    """Run crowds with one seed after the other until each thing was seen often enough."""
    counts, seeds = Counter(), itertools.count(7)
    while min(counts[what] for what in SEEN) < least:
        counts += run(opened, lifetime_s, seed=next(seeds), **given)


def test_no_promise_is_broken_in_memory():
    locks = MemoryLocks(60.0)
    run_until_seen(10, lambda: locks, 60.0, ttl_s=1.0, people=8, seconds=5)


def test_no_promise_is_broken_on_a_metastore(embedded_metastore):
    database, access = f"crowd_{uuid.uuid4().hex}", MetastoreAccess(embedded_metastore.uris)
    run_until_seen(
        3,
        lambda: MetastoreLocks(MetastoreClient(access), database),
        embedded_metastore.lock_timeout_s,
        ttl_s=6.0,
        people=6,
        seconds=8,
    )


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_log_that_is_wrong_in_one_thing_is_found(mutant):
    locks = MemoryLocks(60.0)
    with pytest.raises(ViolationError):
        run(lambda: locks, 60.0, ttl_s=1.0, people=8, seconds=600, seed=7, log=mutant)
