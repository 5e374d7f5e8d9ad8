"""What is left of dead writers: found on tables made by hand, reported with proof and remedy."""

from __future__ import annotations

import threading
from pathlib import Path
from posixpath import basename

import pytest

from airflow_occ_provider.attempts.cleaning import foresee, has_collided, verify
from airflow_occ_provider.attempts.commit import audit_table
from airflow_occ_provider.errors import DataLossError, MetadataCorruptError, TableUnreadableError
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.writer.fate import Fate, procedure_call
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.instant_reader import InstantReader
from airflow_occ_provider.storage.residue import residues
from airflow_occ_provider.storage.snapshot import Snapshot
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import WriterWatch
from tests.golden.table_archive import unpack
from tests.support.hand_made_tables import T0, T1, T2, C, add, begin
from tests.support.residue import (
    GOLDEN,
    JUST_NOW_S,
    LONG_AGO_S,
    ROLLBACK,
    RULE,
    age,
    beat,
    clean,
    complete,
)
from tests.support.rollbacks import mark, roll_back
from tests.support.table_properties import table_properties
from tests.unit.conftest import PROPERTIES


def take_back(folder, instant, seconds=LONG_AGO_S):
    roll_back(folder, instant, ROLLBACK)
    age(folder / "timeline" / ROLLBACK, seconds)


def left(table, **given):
    return [(one.kind.value, one.instant) for one in residues(table, RULE, **given)]


def test_a_committed_write_whose_writer_was_killed_before_its_clean_up_leaves_both(folder, table):
    complete(folder, T1)
    mark(folder, T1)
    beat(folder, T1)
    heartbeat, markers = residues(table, RULE)
    assert (heartbeat.kind, markers.kind) == ("heartbeat", "markers")
    assert heartbeat.path == f".hoodie/.heartbeat/{T1}"
    assert f"instant {T1} is completed ({T1}_{C}.commit); its last tick was 300 s ago" in heartbeat.proof
    assert heartbeat.remedy.endswith(f"hadoop fs -rm {table.path}/{heartbeat.path}")
    assert markers.remedy.endswith(f"CALL delete_marker(table => 't', instant_time => '{T1}')")
    assert "archival" in markers.remedy


def test_what_its_writer_may_just_be_removing_is_not_left(folder, table):
    complete(folder, T1)
    mark(folder, T1)
    beat(folder, T1, JUST_NOW_S)
    assert left(table) == []
    (folder / ".heartbeat" / T1).unlink()
    assert left(table) == [("markers", T1)]
    complete(folder, T1, JUST_NOW_S)
    assert left(table) == []


@pytest.mark.parametrize(
    "pending", ["commit.requested", "inflight", "compaction.requested", "rollback.requested"]
)
def test_nothing_of_a_pending_instant_is_left(folder, table, pending):
    add(folder, f"{T1}.{pending}")
    age(folder / "timeline" / f"{T1}.{pending}", LONG_AGO_S)
    mark(folder, T1)
    beat(folder, T1)
    assert left(table) == []


def test_a_heartbeat_comes_before_its_instant(folder, table):
    beat(folder, T1, JUST_NOW_S)
    assert left(table) == []
    beat(folder, T1)
    (one,) = residues(table, RULE)
    assert "is not in the active timeline, and no rollback there names it" in one.proof


def test_a_rollback_that_goes_on_removes_both_itself(folder, table):
    take_back(folder, T1, JUST_NOW_S)
    beat(folder, T1)
    assert left(table) == []
    assert left(table, given_up=[T1]) == [("heartbeat", T1)]
    take_back(folder, T1)
    assert left(table) == [("heartbeat", T1)]
    assert "(COMPLETED) names instant" in residues(table, RULE)[0].proof


def test_a_driver_with_a_live_heartbeat_after_its_rollback_is_reported(folder, table):
    take_back(folder, T1)
    beat(folder, T1, JUST_NOW_S)
    (one,) = residues(table, RULE)
    assert "its last tick was 10 s ago" in one.proof
    assert one.remedy.startswith("end its driver first: it is alive and can no longer commit")


@pytest.mark.parametrize(("oldest", "seen"), [(T0, "do not see"), (T2, "treat them as committed")])
def test_files_that_were_written_after_the_rollback_come_before_the_markers_that_name_them(
    folder, table, oldest, seen
):
    complete(folder, oldest)
    take_back(folder, T1)
    mark(folder, T1)
    markers, files = residues(table, RULE)
    assert (markers.kind, files.kind, files.path) == ("markers", "data_files", "p")
    assert f"name 1 existing data files: p/f_1-0_{T1}.parquet; readers {seen}" in files.proof
    assert files.remedy.startswith("remove them with Hudi's HoodieRepairTool")
    assert markers.remedy.startswith("only after its data files are removed")


def test_files_of_an_instant_that_is_not_in_the_active_timeline_may_be_committed(folder, table):
    mark(folder, T1)
    _, files = residues(table, RULE)
    assert files.remedy.startswith("unless airflow hudi timeline --archived shows that it committed: ")


def test_markers_of_files_that_are_gone_are_only_markers(folder, table):
    take_back(folder, T1)
    mark(folder, T1, written=False)
    assert left(table) == [("markers", T1)]


def test_a_marker_that_leads_out_of_the_table_is_an_error_not_a_data_file(folder, table, tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key_1.parquet").touch()
    take_back(folder, T1)
    markers = folder / ".temp" / T1
    markers.mkdir(parents=True)
    (markers / "MARKERS.type").write_text("TIMELINE_SERVER_BASED")
    (markers / "MARKERS0").write_text("../secrets/key_1.parquet.marker.CREATE\n")
    with pytest.raises(MetadataCorruptError, match=r"'\.\./secrets', which is outside of the table"):
        residues(table, RULE)


def test_the_name_of_a_table_cannot_change_the_sql_of_a_remedy(folder, table):
    name = "t', instant_time => '0'); DROP TABLE x; --\\\n"
    (folder / "hoodie.properties").write_text(table_properties(table__name=name))
    take_back(folder, T1)
    mark(folder, T1, written=False)
    (markers,) = residues(table, RULE)
    told = r"t\', instant_time => \'0\'); DROP TABLE x; --\\\U0000000A"
    assert markers.remedy.endswith(f"CALL delete_marker(table => '{told}', instant_time => '{T1}')")


def test_the_metadata_table_is_looked_at_too(folder, table):
    inner = folder / "metadata" / ".hoodie"
    (inner / "timeline").mkdir(parents=True)
    (inner / ".heartbeat").mkdir()
    (inner / "hoodie.properties").write_text(PROPERTIES)
    beat(inner, T1)
    mark(inner, T1, written=False)
    found = residues(table, RULE)
    assert [one.path for one in found] == [
        f".hoodie/metadata/.hoodie/{folder}/{T1}" for folder in (".heartbeat", ".temp")
    ]
    for one in found:  # the metadata table has no name that a procedure takes
        assert one.proof.startswith("metadata table: ")
        assert one.remedy.endswith(f"{table.path}/{one.path}")


def test_a_heartbeat_that_real_hudi_left_is_found(tmp_path):
    table = HudiTable(str(unpack(GOLDEN / "upgraded.zip", tmp_path)))
    assert left(table) == [("heartbeat", "20261121190945688")]


# What a clean came to.


def test_the_table_shows_that_a_clean_ran(folder, table):
    begin(folder, T1)
    begin(folder, T2)
    beat(folder, T1)
    cleaning, before = foresee(table, RULE)
    assert (cleaning.dead, cleaning.rolled_back, cleaning.residues) == ((T1,), (), ())
    assert before.writer(T2).fate is Fate.ALIVE
    clean(folder, T1)
    done = verify(table, RULE, before)
    assert (done.dead, done.rolled_back, done.cleaned_files, done.losses) == ((T1,), (T1,), None, ())
    assert [(residue.kind, residue.instant) for residue in done.residues] == [("heartbeat", T1)]
    assert done.to_json(dry_run=False)["left"][0]["proof"] == done.residues[0].proof


def test_what_the_clean_did_not_roll_back_is_reported(folder, table):
    begin(folder, T1)
    begin(folder, T2)
    beat(folder, T1)
    beat(folder, T2)
    _, before = foresee(table, RULE)
    for path in (folder / "timeline").glob(f"{T2}*"):
        path.unlink()
    (folder / ".heartbeat" / T2).unlink()
    done = verify(table, RULE, before)
    assert done.rolled_back == ()
    first, second = done.residues
    assert (first.kind, first.instant) == ("write", T1)
    assert "is dead: its heartbeat expired 180" in first.proof
    assert (second.kind, second.instant) == ("write", T2)
    assert "has left the timeline, and no rollback there names it" in second.proof


def test_a_write_that_committed_meanwhile_is_not_left(folder, table):
    begin(folder, T1)
    beat(folder, T1)
    before = WriterWatch(table, RULE).observe()
    complete(folder, T1, JUST_NOW_S)
    (folder / ".heartbeat" / T1).unlink()
    done = verify(table, RULE, before)
    assert (done.dead, done.rolled_back, done.residues) == ((T1,), (), ())


@pytest.mark.parametrize(
    ("line", "collided"),
    [
        (f"HoodieIOException: Failed to create file /t/.hoodie/timeline/{T1}.clean.inflight", True),
        (f"IllegalArgumentException: File /t/.hoodie/timeline/{T1}.rollback.requested does not", True),
        (f"HoodieIOException: Failed to create file /t/.hoodie/timeline/{T1}_{C}.clean", True),
        (f"IllegalArgumentException: File /t/.hoodie/timeline/{T1}.inflight does not exist!", False),
        ("HoodieLockException: Unable to acquire the lock", False),
    ],
)
def test_two_cleans_at_once_are_known_by_the_file_that_both_make(line, collided):
    assert has_collided(["x", line]) == collided


# No completed write has lost a file.


@pytest.fixture
def cleaned(tmp_path):
    return HudiTable(str(unpack(GOLDEN / "cleaned.zip", tmp_path)))


def newest(table):
    snapshot = table.snapshot()
    commit = snapshot.timeline.completed_writes()[-1]
    return snapshot, commit, snapshot.reader.commit(commit).paths


def test_a_file_that_nothing_explains_is_a_loss_that_names_its_commit(cleaned):
    snapshot, commit, (first, *_) = newest(cleaned)
    assert audit_table(cleaned, snapshot) == ()
    (Path(cleaned.path) / first).unlink()
    (loss,) = audit_table(cleaned, snapshot)
    assert (loss.instant, loss.missing, loss.culprit) == (commit.time, (first,), None)
    assert isinstance(loss.error(), DataLossError)


def test_the_partitions_of_an_audit_are_listed_side_by_side(cleaned, monkeypatch):
    both, listing = threading.Barrier(2, timeout=30), TableFolder.listing

    def meeting(files, folder):
        if not folder.startswith(".hoodie"):
            both.wait()
        return listing(files, folder)

    monkeypatch.setattr(TableFolder, "listing", meeting)
    assert audit_table(cleaned, cleaned.snapshot()) == ()


def test_an_audit_reads_each_clean_once_for_all_commits(cleaned, monkeypatch):
    read, deleted_names = [], InstantReader.deleted_names

    def counted(reader, instant):
        read.append(instant)
        return deleted_names(reader, instant)

    monkeypatch.setattr(InstantReader, "deleted_names", counted)
    snapshot = cleaned.snapshot()
    assert audit_table(cleaned, snapshot) == ()
    assert read == [one for one in snapshot.timeline if one.action == "clean"]


def test_an_audit_ends_with_the_first_error(cleaned, monkeypatch):
    def refused(*_):
        raise TableUnreadableError("no", remedy="none")

    monkeypatch.setattr(Snapshot, "data_files", refused)
    with pytest.raises(TableUnreadableError):
        audit_table(cleaned, cleaned.snapshot())


def test_a_file_that_a_younger_slice_supersedes_is_no_loss_unless_a_rollback_deleted_it(
    cleaned, monkeypatch
):
    """The same table, as if its oldest clean had been archived before the writes that it cleaned."""
    timeline = Path(cleaned.path) / ".hoodie" / "timeline"
    oldest = min(path.name[:17] for path in timeline.glob("*.clean"))
    for file in timeline.glob(f"{oldest}*"):
        file.unlink()
    snapshot = cleaned.snapshot()
    assert audit_table(cleaned, snapshot) == ()
    first = snapshot.timeline.completed_writes()[0]
    gone = frozenset(basename(path) for path in snapshot.reader.commit(first).paths)
    (timeline / "20991231000000000.rollback.requested").touch()
    deleted_names = InstantReader.deleted_names

    def deleted(reader, instant):
        return gone if instant.action == "rollback" else deleted_names(reader, instant)

    monkeypatch.setattr(InstantReader, "deleted_names", deleted)
    (loss,) = audit_table(cleaned, cleaned.snapshot())
    assert (loss.instant, loss.culprit.action) == (first.time, "rollback")


def test_a_statement_for_people_quotes_the_tables_name():
    properties = {"hoodie.database.name": "d", "hoodie.table.name": "o'\\t"}
    statement = procedure_call("delete_marker", TableConfig(properties), "1")
    assert statement == r"CALL delete_marker(table => 'd.o\'\\t', instant_time => '1')"
