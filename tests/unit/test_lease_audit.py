from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_occ_provider.attempts import attempt
from airflow_occ_provider.attempts.attempt import audit_lease, audit_scope, planned_partitions
from airflow_occ_provider.attempts.driver import Admitted
from airflow_occ_provider.errors import LeaseLostError, MisconfigurationError
from airflow_occ_provider.leases.rules import Mode, Scope
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.leased_commits import commit

TABLES = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"
SCOPE = Scope.of("/t", ["dt=1", "dt=2/hour=1"])
log = logging.getLogger("test")


@pytest.mark.parametrize(
    ("name", "instant", "partitions"),
    [
        ("live_direct", "20261121134138704", ("p1", "p7")),  # an upsert, by its workload profile
        ("live_direct", "20261121134140446", ("p2", "p9")),  # an insert of new keys
        ("live_direct", "20261121134141547", ("p0",)),  # insert_overwrite
        ("live_direct", "20261121134145477", ()),  # only requested
        ("live_server", "20261121134156893", ("p2",)),  # a delete, merge on read
        ("live_direct", "20200101000000000", ()),
        ("live_direct", None, ()),
    ],
)
def test_what_a_lost_try_was_about_to_write_is_in_its_profile(tmp_path, name, instant, partitions):
    table = HudiTable(str(unpack(TABLES / f"{name}.zip", tmp_path / "t")))
    assert planned_partitions(table, instant) == partitions


def test_a_completed_write_or_a_missing_table_shows_nothing(tmp_path):
    table = HudiTable(str(unpack(TABLES / "operations.zip", tmp_path / "t")))
    (instant, *_) = table.snapshot().timeline.completed_writes()
    assert planned_partitions(table, instant.time) == ()
    assert planned_partitions(HudiTable(str(tmp_path / "nowhere")), instant.time) == ()


def test_more_partitions_than_a_lease_can_name_mean_the_whole_table(tmp_path, monkeypatch):
    table = HudiTable(str(unpack(TABLES / "live_direct.zip", tmp_path / "t")))
    monkeypatch.setattr(attempt, "MOST_PARTITIONS", 1)
    assert planned_partitions(table, "20261121134138704") == ()
    assert planned_partitions(table, "20261121134141547") == ("p0",)


def test_a_commit_within_its_scope_is_not_reported(caplog):
    audit_scope(commit("dt=1", "dt=1/hour=7", "dt=2/hour=1"), Admitted(SCOPE), log)
    audit_scope(commit("dt=9"), Admitted(), log)
    audit_scope(commit("dt=9"), Admitted(Scope("/t", Mode.SHARED)), log)
    assert caplog.text == ""


def test_a_commit_outside_its_scope_is_reported(caplog):
    audit_scope(commit("dt=1", "dt=2", "dt=3"), Admitted(SCOPE), log)
    assert "commit T wrote dt=2, dt=3, outside its scope" in caplog.text


def test_where_only_the_lease_kept_others_away_it_is_an_error():
    many = [f"dt={number}" for number in range(9)]
    with pytest.raises(MisconfigurationError, match=r"dt=0, dt=2, .* and 3 more, outside") as refused:
        audit_scope(commit(*many), Admitted(SCOPE, is_fenced=False), log)
    assert refused.value.committed is True


def test_a_lost_lease_stops_only_a_writer_that_nothing_else_protects():
    keeper = SimpleNamespace(lost=LeaseLostError("gone", remedy=""))
    Admitted(SCOPE, "1", is_fenced=True, keeper=keeper).refuse_if_lost()
    with pytest.raises(LeaseLostError):
        Admitted(SCOPE, "1", is_fenced=False, keeper=keeper).refuse_if_lost()


def test_a_commit_after_the_loss_of_its_only_fence_is_reported():
    lost = LeaseLostError("the lease of request i is lost: it was removed", remedy="")
    keeper = SimpleNamespace(lost=lost)
    audit_lease(commit("a"), Admitted(SCOPE, "1", is_fenced=True, keeper=keeper))
    with pytest.raises(MisconfigurationError, match=r"commit T landed, but the lease .* lost") as told:
        audit_lease(commit("a"), Admitted(SCOPE, "1", is_fenced=False, keeper=keeper))
    assert (told.value.committed, told.value.retry) == (True, False)
