"""A short run of the state machine over both stores, and the proof that its checker can fail."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from tests.contract.toy_store import Bucket, ToyStore
from tests.model.checker import ViolationError
from tests.model.machine import run
from tests.model.mutants import MUTANTS, ForgetsTasks
from tests.model.world import Claim, World
from tests.support.lease_stores import STORES, prompt_store

# The model's own; needs Go; need a server of their own, and take a minute.
NOT_HERE = {"memory", "s3", "metastore", "dynamodb"}
STEPS_TO_FIND_A_MUTANT = 100_000
SEED_THAT_FINDS = 9  # each of them in a second but this one; another seed may take half a minute
OTHER_SEEDS: dict[type[Queue], int] = {ForgetsTasks: 24}


def test_no_promise_is_broken():
    counts = run(4000, 7)
    assert counts["steps"] >= 4000
    for what in ("grants", "evictions", "adoptions", "refusals", "stalls", "lost", "no answer"):
        assert counts[what] > 20, what


@pytest.mark.parametrize("kind", [kind for kind in STORES if kind not in NOT_HERE])
def test_no_promise_is_broken_in_a_store(kind):
    with prompt_store(kind) as open_store:
        stores = [open_store() for _ in range(4)]
        counts = run(200, 7, stores=stores)
        assert stores[0].stamps() == {}
    assert counts["grants"] > 10
    assert counts["listings that were old"] > 10


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
