"""A short run of the state machine over both stores, and the proof that its checker can fail."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack

import pytest

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from tests.contract.toy_store import Bucket, ToyStore
from tests.crowd.locks import MemoryLocks
from tests.model.checker import ViolationError
from tests.model.machine import run
from tests.model.mutants import MUTANTS, ForgetsTasks
from tests.model.world import Claim, World
from tests.support.shared_objects import PromptLocks, PromptStore, shared_objects

STEPS_TO_FIND_A_MUTANT = 100_000
SEED_THAT_FINDS = 9  # each of them in a second but this one; another seed may take half a minute
OTHER_SEEDS: dict[type[Queue], int] = {ForgetsTasks: 24}


def test_no_promise_is_broken():
    counts = run(4000, 7)
    assert counts["steps"] >= 4000
    for what in ("grants", "evictions", "adoptions", "refusals", "stalls", "lost", "no answer"):
        assert counts[what] > 20, what


def test_no_promise_is_broken_on_zookeeper(embedded_zookeeper):
    with ExitStack() as stack:
        stores = []
        for _ in range(4):
            stores.append(ZookeeperStore(ZookeeperAccess(embedded_zookeeper.hosts), "/model"))
            stack.callback(stores[-1].close)
        counts = run(200, 7, stores=stores)
        assert stores[0].stamps() == {}
    assert counts["grants"] > 10


def test_no_promise_is_broken_in_the_queue_of_a_bucket():
    with shared_objects("bucket") as open_one:
        stores = [PromptStore(open_one(), 0.05) for _ in range(4)]
        counts = run(200, 7, stores=stores)
        assert stores[0].stamps() == {}
    assert counts["grants"] > 10
    assert counts["listings that were old"] > 10


def test_no_promise_is_broken_in_the_locks_of_a_metastore():
    locks = MemoryLocks(600)
    stores = [PromptLocks(locks, 600, 0.05) for _ in range(4)]
    counts = run(200, 7, stores=stores)
    assert stores[0].stamps() == {}
    assert counts["grants"] > 10


def test_no_promise_is_broken_in_a_store_of_another_package():
    bucket = Bucket()
    counts = run(200, 7, stores=[ToyStore(bucket) for _ in range(4)])
    assert not bucket.nodes
    assert counts["grants"] > 10


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_line_that_is_wrong_in_one_thing_is_found(mutant: type[Queue]):
    with pytest.raises(ViolationError):
        run(STEPS_TO_FIND_A_MUTANT, OTHER_SEEDS.get(mutant, SEED_THAT_FINDS), line=mutant)


def test_the_same_seed_gives_the_same_run():
    assert run(600, 3) == run(600, 3)
    assert run(600, 3)["trace"] != run(600, 4)["trace"]


def test_an_owner_relies_on_its_own_term_however_often_others_take_over():
    world = World(Counter())
    first, second, third, _ = world.clients
    asked = Request("q1", Owner(("dag", "run", "task")), (Scope("/t"),), 3000)
    world.claims.append(claim := Claim(asked, first))
    world.request(claim)
    world.renew(claim, 3)
    ticket = claim.ticket
    assert ticket
    world.adopt(claim, second)
    world.adopt(claim, third)  # a term of 3 s, while the first owner's 9 s run
    world.now = 8.0
    assert first.queue.status(ticket).held
    world.checker.on_held(first.wire.client, ticket)
    world.now = 9.5
    with pytest.raises(ViolationError, match="a whole term after it was taken over"):
        world.checker.on_held(first.wire.client, ticket)
