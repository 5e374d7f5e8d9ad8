"""Tables that real Hudi wrote, read by us: the same as Hudi's own Java API said of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from airflow_occ_provider.attempts.commit import audit, audit_table
from airflow_occ_provider.hudi.conflict.strategy import Strategy, infer_strategy, possible_releases
from airflow_occ_provider.hudi.format.avro import decode
from airflow_occ_provider.hudi.format.instant import from_naive_ms, naive_ms
from airflow_occ_provider.reading.described import describe_instant
from airflow_occ_provider.storage.table import HudiTable
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import FOLDER, unpack

TABLES = sorted(path.relative_to(FOLDER).with_suffix("") for path in FOLDER.glob("*/*.zip"))
KOLKATA_MS = 19_800_000
KEYS = (
    *("time", "action", "state", "completion_time", "operation", "written", "replaced", "planned"),
    *("markers", "heartbeat", "extra", "archived"),
)


@pytest.fixture(params=TABLES, ids=str)
def golden(request, tmp_path, monkeypatch):
    """A golden table, and what Hudi said of it, in the zone in which it was written."""
    said = json.loads((FOLDER / f"{request.param}.json").read_text())
    monkeypatch.setenv("TZ", said["local_zone"])
    time.tzset()
    yield HudiTable(str(unpack(FOLDER / f"{request.param}.zip", tmp_path))), said
    monkeypatch.undo()
    time.tzset()


def test_every_golden_table_reads_as_hudi_reads_it(golden):
    table, said = golden
    snapshot = table.snapshot()
    heartbeats = snapshot.heartbeats()
    assert said["archive_read"]
    instants = [*snapshot.history(), *snapshot.timeline]
    ours = {(i.time, i.action): describe_instant(snapshot, i, heartbeats, files=True) for i in instants}
    theirs = {(i["time"], i["action"]): {key: i[key] for key in KEYS} for i in said["instants"]}
    is_shifted = said["table"]["layout"] == 1 and said["table"]["timezone"] == "UTC"
    for instant in theirs.values():
        if instant["state"] != "COMPLETED":  # in layout 1 Hudi gives the time of the pending file
            instant["completion_time"] = None
        elif is_shifted and instant["completion_time"]:  # in the zone of its JVM; we keep to the table's
            local_ms = naive_ms(instant["completion_time"])
            instant["completion_time"] = from_naive_ms(local_ms - KOLKATA_MS)
    assert ours.keys() == theirs.keys()
    for key, instant in theirs.items():
        assert {name: ours[key][name] for name in KEYS} == instant
    assert (snapshot.config.version, snapshot.config.merge_on_read) == (
        said["table"]["version"],
        said["table"]["type"] == "MERGE_ON_READ",
    )


def test_what_rollbacks_name_is_what_hudi_says(golden):
    table, said = golden
    rollbacks = [one for one in table.snapshot().rollbacks() if one[0].action == "rollback"]
    named = {rollback.time: sorted(victims) for rollback, victims in rollbacks}
    live = [one for one in said["instants"] if one["action"] == "rollback" and not one["archived"]]
    assert named == {one["time"]: sorted(one["victims"]) for one in live}


def test_golden_tables_with_rollbacks_are_there():
    said = [json.loads((FOLDER / f"{table}.json").read_text())["instants"] for table in TABLES]
    victims = [one["victims"] for instants in said for one in instants if one["action"] == "rollback"]
    assert len(list(filter(None, victims))) >= 10


def test_the_files_of_a_writer_show_its_release_and_its_index(golden, request):
    table, said = golden
    name, snapshot = Path(request.node.callspec.params["golden"]), table.snapshot()
    release = tuple(map(int, name.parent.name.split(".")[:2]))
    writers = map(snapshot.operation, snapshot.timeline.pending_writes())
    for one in (one for one in writers if one.bases):
        version = said["table"]["version"]
        like = (1, 2) if release == (1, 1) and version > 6 else release  # with the same rules
        assert like in possible_releases(version, one.stat_fields)
        assert (infer_strategy([one]) is Strategy.BUCKET_INDEX) is (name.name == "bucket_index")
    for metadata in map(snapshot.reader.commit, snapshot.timeline.completed_writes()):
        if said["table"]["version"] == 6 and metadata.stat_fields is not None:
            told = possible_releases(6, metadata.stat_fields)
            alike = {(1, 0), (1, 1)}
            assert set(told) == (alike if release in alike else {release})


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("version", HUDI_RELEASES)
def test_a_restore_names_all_that_it_took_back(tmp_path, version, pending):
    path = unpack(FOLDER / version / "restored.zip", tmp_path)
    (plan,) = path.glob(".hoodie/**/*.restore.requested")
    taken = {one["commitTime"] for one in decode(plan.read_bytes())["instantsToRollback"]}
    if pending:
        next(path.glob(".hoodie/**/*.restore")).unlink()
    snapshot = HudiTable(str(path)).snapshot()
    ((restore, victims),) = snapshot.rollbacks()
    assert (restore.action, restore.completed, victims) == ("restore", not pending, taken)
    assert len(taken) == 2
    assert {snapshot.rollback_of(time) for time in taken} == {restore}
    deleted = snapshot.reader.deleted_names(restore) if not pending else frozenset()
    assert pending or {name.rpartition("_")[2] for name in deleted} == {f"{t}.parquet" for t in taken}


def test_no_commit_of_them_has_lost_data_nor_has_an_archived_one(golden):
    table, _ = golden
    snapshot = table.snapshot()
    archived = [instant for instant in snapshot.history() if instant.is_write]
    for instant in (*archived, *snapshot.timeline.completed_writes()):
        metadata = snapshot.reader.commit(instant)
        if metadata or not instant.archived:  # an upgrade has archived some that cannot be decoded
            assert audit(table, snapshot, instant, metadata) is None


def test_no_commit_has_lost_data_once_the_cleans_are_archived(golden):
    table, _ = golden
    timeline = Path(table.path, table.config().timeline_folder)
    for file in timeline.glob("*.clean*"):
        file.unlink()
    snapshot = table.snapshot()
    for instant in snapshot.timeline.completed_writes():
        assert audit(table, snapshot, instant, snapshot.reader.commit(instant)) is None
    assert audit_table(table, snapshot) == ()


def test_no_completed_write_of_a_golden_table_has_lost_a_file(golden):
    table, _ = golden
    assert audit_table(table, table.snapshot()) == ()
