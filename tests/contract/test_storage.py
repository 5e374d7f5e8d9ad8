"""One suite for every storage: the same table says the same."""

from __future__ import annotations

import threading
from time import time as now_s

import fsspec
import pytest

from airflow_occ_provider.errors import (
    MetadataCorruptError,
    NotHudiTableError,
    StorageStalledError,
    UnknownTableVersionError,
)
from airflow_occ_provider.hudi.conflict.verdict import Certainty
from airflow_occ_provider.storage.conflicts import verdicts
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.writers import pending_writers
from tests.support.avro_metadata import RECORD, avro
from tests.support.observed import until
from tests.support.table_properties import table_properties

T0, T1, T2 = "20261121092507982", "20261121092529777", "20261121092543328"
C0, C2 = "20261121092508000", "20261121092559999"
MARKER = "p=1/f1-0_0-1-2_{time}.parquet.marker.MERGE"


@pytest.fixture
def folder(tmp_path):
    """A table with a commit, a live writer, and one that committed against it."""
    metadata = tmp_path / "made" / ".hoodie"
    timeline = metadata / "timeline"
    (timeline / "history").mkdir(parents=True)
    (metadata / "hoodie.properties").write_text(table_properties())
    profile = avro({**RECORD, "partitionToReplaceFileIds": {}, "operationType": "UPSERT"})
    for time, completion in ((T0, C0), (T1, None), (T2, C2)):
        (timeline / f"{time}.commit.requested").write_bytes(b"")
        (timeline / f"{time}.inflight").write_bytes(profile)
        if completion:
            (timeline / f"{time}_{completion}.commit").write_bytes(profile)
    heartbeat, markers = metadata / ".heartbeat" / T1, metadata / ".temp" / T1 / "p=1"
    heartbeat.parent.mkdir()
    heartbeat.write_bytes(b"x")
    markers.mkdir(parents=True)
    (metadata / ".temp" / T1 / MARKER.format(time=T1)).write_bytes(b"x")
    return metadata.parent


@pytest.fixture
def table(storage, folder):
    storage.put(folder, "t")
    storage.counted()
    return storage.open("t")


def test_the_timeline(table):
    snapshot = table.snapshot()
    assert [(i.time, i.state.value, i.completion_time) for i in snapshot.timeline] == [
        (T0, "COMPLETED", C0),
        (T1, "INFLIGHT", None),
        (T2, "COMPLETED", C2),
    ]
    assert snapshot.reader.commit(snapshot.timeline.find(T0)).operation_type == "UPSERT"


@pytest.mark.parametrize("spelling", ["/t", "./t", "x/../t/."])
def test_a_table_is_found_as_hadoop_spells_it(table, storage, spelling):
    assert storage.open(spelling).snapshot().timeline == table.snapshot().timeline


def test_who_writes(table):
    (writer,) = pending_writers(table, table.snapshot())
    assert writer.live
    assert writer.operation.instant.time == T1
    assert ("p=1", "f1-0") in writer.operation.file_groups


def test_the_verdict(table):
    verdict = verdicts(table, table.snapshot())[T1]
    assert [conflict.rival.instant.time for conflict in verdict.conflicts] == [T2]


def test_a_rival_that_commits_during_the_look_has_won(storage, folder):
    completed = folder / ".hoodie" / "timeline" / f"{T2}_{C2}.commit"
    profile = completed.read_bytes()
    completed.unlink()
    storage.put(folder, "race")
    table = storage.open("race")
    before = table.snapshot()
    (conflict,) = verdicts(table, before)[T1].conflicts
    assert (conflict.certainty, conflict.rival.instant.completed) == (Certainty.POSSIBLE, False)
    assert "no heartbeat" in conflict.reason
    root = table.files._root
    storage.file_system.pipe_file(f"{root}/.hoodie/timeline/{completed.name}", profile)
    found = verdicts(table, before)
    (conflict,) = found[T1].conflicts
    assert conflict.rival.instant.completed
    assert "heartbeat" not in conflict.reason
    assert T2 not in found


def test_a_retired_heartbeat_is_gone(table):
    assert table.retire_heartbeat(T1)
    assert not table.retire_heartbeat(T1)
    assert not table.snapshot().heartbeats()


def test_no_table_here(storage):
    with pytest.raises(NotHudiTableError, match=r"nowhere is not a Hudi table.*Remedy"):
        storage.open("nowhere").snapshot()


def test_a_table_from_the_future(storage, folder):
    properties = folder / ".hoodie" / "hoodie.properties"
    properties.write_text(table_properties(version=10))
    storage.put(folder, "future")
    with pytest.raises(UnknownTableVersionError, match=r"future has table version 10, .*Remedy"):
        storage.open("future").snapshot()


@pytest.mark.parametrize("content", [b"Obj\x01cut", b"{", b"[]"])
def test_a_damaged_file_is_named(storage, folder, content):
    (folder / ".hoodie" / "timeline" / f"{T0}_{C0}.commit").write_bytes(content)
    storage.put(folder, f"damaged{len(content)}")
    snapshot = storage.open(f"damaged{len(content)}").snapshot()
    with pytest.raises(MetadataCorruptError, match=rf"{T0}_{C0}.commit cannot be decoded.*Remedy"):
        snapshot.reader.commit(snapshot.timeline.find(T0))


def test_a_profile_that_is_still_being_written_breaks_nothing(storage, folder):
    inflight = folder / ".hoodie" / "timeline" / f"{T1}.inflight"
    inflight.write_bytes(inflight.read_bytes()[:-30])
    storage.put(folder, "half")
    table = storage.open("half")
    snapshot = table.snapshot()
    (writer,) = pending_writers(table, snapshot)
    assert writer.operation.operation_type == "UNKNOWN"
    assert verdicts(table, snapshot)[T1].certainty is Certainty.POSSIBLE


@pytest.mark.timeout(30)
def test_a_storage_that_stalls_is_given_up(storage, folder, monkeypatch):
    storage.put(folder, "stalled")
    table = storage.open("stalled", timeout_s=0.3)
    forever = threading.Event()
    monkeypatch.setattr(storage.file_system, "cat_file", lambda *_, **__: forever.wait(20))
    try:
        with pytest.raises(StorageStalledError, match=r"hoodie.properties: the storage did not answer"):
            table.snapshot()
    finally:
        forever.set()


@pytest.mark.parametrize("instants", [0, 100])
def test_on_an_object_store_the_requests_do_not_grow_with_the_table(s3, folder, instants):
    for number in range(instants):
        time = f"{20260101000000000 + number}"
        (folder / ".hoodie" / "timeline" / f"{time}_{time}.commit").write_bytes(b"")
    name = f"counted{instants}"
    s3.put(folder, name)
    s3.counted()
    table = s3.open(name)
    snapshot = table.snapshot()
    kinds = [request.split()[0] for request in s3.counted()]
    assert kinds == ["GET", "GET"]
    table.snapshot(snapshot)
    (listing,) = s3.counted()
    assert "list-type=2" in listing


def test_ten_writers_are_judged_with_one_request_for_each_file_that_matters(s3, folder):
    timeline, markers = folder / ".hoodie" / "timeline", folder / ".hoodie" / ".temp"
    profile = (timeline / f"{T1}.inflight").read_bytes()
    for number in range(20):
        time = f"{20260101000000000 + number}"
        (timeline / f"{time}_{time}.commit").write_bytes(profile)
    writers = [f"{int(T1) + number}" for number in range(10)]
    for time in writers[1:]:
        (timeline / f"{time}.inflight").write_bytes(profile)
        (markers / time / "p=1").mkdir(parents=True)
        (markers / time / MARKER.format(time=time)).write_bytes(b"x")
    s3.put(folder, "ten")
    s3.counted()
    table = s3.open("ten")
    found = verdicts(table, table.snapshot())
    assert sorted(found) == writers
    assert all(any(c.rival.instant.completed for c in one.conflicts) for one in found.values())
    requests = s3.counted()
    read = [one for one in requests if one.startswith("GET") and "list-type" not in one]
    profiles = {f"{time}.inflight" for time in (*writers, T2)}
    assert sorted(one.rpartition("/")[2].rstrip("?") for one in read) == sorted(
        {"hoodie.properties", f"{T2}_{C2}.commit", *profiles}
    )
    listed = [one for one in requests if "list-type" in one]
    assert len(listed) == 3 + len(writers)  # the timeline twice, the heartbeats, each writer's markers


def test_the_object_that_stands_for_a_folder_is_not_in_it(storage, folder):
    """Hadoop keeps one for each folder in an object store, even if the folder has files."""
    storage.put(folder, "marked")
    for name in (".heartbeat", f".temp/{T1}", f".temp/{T1}/p=1", "timeline"):
        storage.mark_folder(storage.key(f"marked/.hoodie/{name}"))
    table = storage.open("marked")
    assert len(tuple(table.snapshot().timeline)) == 3
    assert list(table.snapshot().heartbeats()) == [T1]
    assert [one.partition for one in table.snapshot().markers(T1)] == ["p=1"]
    storage.file_system.rm_file(storage.key(f"marked/.hoodie/.heartbeat/{T1}"))
    assert not table.files.listing(".hoodie/.heartbeat").names
    storage.mark_folder(storage.key("begun/.hoodie"))
    with pytest.raises(NotHudiTableError):
        storage.open("begun").snapshot()


def test_a_heartbeat_has_the_time_of_its_last_write(storage, folder):
    storage.put(folder, "beating")
    table, beat = storage.open("beating"), storage.key(f"beating/.hoodie/.heartbeat/{T1}")
    before = table.files.heartbeats()[T1]
    assert abs(now_s() * 1000 - before) < 60_000

    def again():
        storage.file_system.pipe_file(beat, b"x")
        return table.files.heartbeats()[T1] > before  # some storages keep whole seconds

    until(again, "a later time")


def test_a_file_system_that_caches_listings_hides_nothing_new(s3_server, s3, folder):
    """Airflow's own file systems come with their listings cache on."""
    url, _ = s3_server
    caching = fsspec.filesystem("s3", key="k", secret="s", endpoint_url=url, skip_instance_cache=True)
    s3.put(folder, "cached")
    table = HudiTable("s3a://lake/cached", caching)
    before = table.snapshot()
    assert before.heartbeats()
    assert before.markers(T1)
    s3.file_system.pipe_file(f"lake/cached/.hoodie/timeline/{T1}_{C2}.commit", b"")
    s3.file_system.rm_file(f"lake/cached/.hoodie/.heartbeat/{T1}")
    s3.file_system.rm(f"lake/cached/.hoodie/.temp/{T1}", recursive=True)
    after = table.snapshot(before)
    assert after.timeline.find(T1).completed
    assert not after.heartbeats()
    assert not after.markers(T1)
