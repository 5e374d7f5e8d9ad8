"""A lease passes worker -> triggerer -> worker, beside a rival: a slice of ``tests.handovers``."""

from __future__ import annotations

import pytest

from airflow_occ_provider.leases.queue import Queue
from tests.handovers import case
from tests.handovers.mutants import MUTANTS
from tests.handovers.rig import first_broken, hand_over, hand_over_in
from tests.support.lease_stores import prompt_store

CASES = 30
CASES_TO_FIND_A_MUTANT = 600


def test_nobody_is_granted_what_is_handed_over_and_the_dead_are_removed_in_time(embedded_zookeeper):
    counts, broken = hand_over(embedded_zookeeper.hosts, range(CASES), seed=7)
    assert broken == []
    assert counts["handed over"] + counts["taken over"] + counts["freed"] >= CASES
    assert min(counts["handed over"], counts["taken over"], counts["freed"]) > 0
    assert counts["looks of a rival"] > 0


def test_nothing_breaks_in_the_queue_of_a_folder():
    with prompt_store("folder") as open_store:
        counts, broken = hand_over_in(open_store, range(CASES), 7)
    assert broken == []
    assert min(counts["handed over"], counts["taken over"], counts["freed"]) > 0


def test_nothing_breaks_in_memory():
    assert first_broken(Queue, range(5 * CASES), 7) is None


def test_a_claim_begins_as_the_trigger_fires():
    """The trigger waits before it fires; that time is not taken from the next process."""
    assert first_broken(Queue, (138, 264, 464, 500, 600, 661), 2211) is None


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_line_that_is_wrong_in_one_thing_breaks_a_case(mutant: type[Queue], monkeypatch):
    monkeypatch.setattr(case, "WAKE_S", 5)
    assert first_broken(mutant, range(CASES_TO_FIND_A_MUTANT), 7)
