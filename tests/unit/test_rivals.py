"""What a lost attempt waits for: on tables made by hand, and on golden ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.rivals import pending_rivals, still_pending
from airflow_occ_provider.attempts.settle import Settlement
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.hudi.writer.table_service import Service
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_plans
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.support.hand_made_tables import T0, T1, T2, C, add, begin
from tests.support.residue import beat

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
RULE = HeartbeatRule(60_000, 2)
EARLY = Settlement(Outcome.EARLY_CONFLICT)
REFUSED = Settlement(Outcome.CLUSTERING_CONFLICT)


def rivals(table, settlement=EARLY, partitions=(), own=(), **more):
    return pending_rivals(table, settlement, partitions, own, RULE, **more)


def test_a_writer_that_beats_is_a_rival_and_neither_a_dead_one_nor_an_own_one(folder, table):
    for instant in (T0, T1, T2):
        begin(folder, instant)
    beat(folder, T1, 600)
    assert rivals(table) == (T0, T2)
    assert rivals(table, own=[T2]) == (T0,)
    assert rivals(table, REFUSED) == ()
    (folder / "timeline" / f"{T2}.inflight").unlink()  # only requested: it has no markers yet
    assert rivals(table) == (T0,)
    assert still_pending(table, (T0, T1, T2), RULE) == (T0, T2)
    add(folder, f"{T0}_{C}.commit")
    assert still_pending(table, (T0, T2), RULE) == (T2,)


def test_a_rival_that_hudi_named_is_waited_for_while_it_is_pending_and_no_other(folder, table):
    for instant in (T0, T1):
        begin(folder, instant)
    named = Settlement(Outcome.COMMIT_CONFLICT, rival=T1)
    assert rivals(table, named) == (T1,)
    add(folder, f"{T1}_{C}.commit")
    assert rivals(table, named) == ()


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_a_pending_clustering_of_the_same_partitions_is_a_rival(release, tmp_path):
    table = HudiTable(str(unpack(GOLDEN / release / "clustering.zip", tmp_path)))
    first, second = (one.time for one in pending_plans(table.snapshot(), Service.CLUSTERING, RULE))
    assert rivals(table, REFUSED) == (first, second)
    assert rivals(table, REFUSED, ["p1"]) == (first,)
    assert rivals(table, REFUSED, ["p2/x", "p9"]) == (second,)
    assert rivals(table, REFUSED, ["p"]) == ()
    assert rivals(table, REFUSED, clusterings=False) == ()
    assert rivals(table, EARLY) == ()  # early detection does not look at plans
    assert still_pending(table, (first, second), RULE) == (first, second)


def test_a_table_that_cannot_be_read_names_no_rival(folder, table):
    (folder / "hoodie.properties").unlink()
    assert rivals(table) == ()
