"""The archive of layout 1: read record by record, whatever its writer left unfinished."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path

import fsspec
import pytest

from airflow_occ_provider.attempts.commit import earlier_commit, find_commit
from airflow_occ_provider.attempts.record import TableBefore
from airflow_occ_provider.errors import MetadataCorruptError, TableUnreadableError
from airflow_occ_provider.hudi.format.archive import Entry, RecordPosition, instants_of, read_entries
from airflow_occ_provider.hudi.format.instant import Instant, State, from_naive_ms, naive_ms
from airflow_occ_provider.storage import archive
from airflow_occ_provider.storage.archive import Archive
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack

GOLDEN = Path(__file__).parents[1] / "golden" / "tables" / "0.15.0" / "history.zip"
MAGIC = b"#HUDI#"
NAME = ".commits_.archive.{}_1-0-1"
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "HoodieArchivedMetaEntry",
        "fields": [
            {"name": "commitTime", "type": ["null", "string"]},
            {"name": "actionType", "type": ["null", "string"]},
            {"name": "actionState", "type": ["null", "string"]},
        ],
    }
).encode()


def entry(time, action="commit", state="COMPLETED"):
    return b"".join(b"\2" + bytes([2 * len(text)]) + text.encode() for text in (time, action, state))


def content(*records, version=3):
    head = struct.pack(">ii", version, len(records))
    return head + b"".join(struct.pack(">i", len(record)) + record for record in records)


def header(schema=SCHEMA, entries=1, length=None):
    return struct.pack(">iii", entries, 2, len(schema) if length is None else length) + schema


def block(held, head=None, version=1, kind=3):
    body = struct.pack(">ii", version, kind) + (head or header())
    body += struct.pack(">q", len(held)) + held + struct.pack(">i", 0)
    length = len(body) + 8
    return MAGIC + struct.pack(">q", length) + body + struct.pack(">q", length + len(MAGIC))


def times(data):
    return [one.time for one in read_entries("x", lambda start, stop: data[start:stop], len(data))]


def schema_of(*fields):
    listed = [{"name": name, "type": ["null", "string"]} for name in fields]
    return header(json.dumps({"type": "record", "name": "x", "fields": listed}).encode())


def text(value):
    return b"\0" if value is None else b"\2" + bytes([2 * len(value)]) + value.encode()


FIRST, SECOND = block(content(entry("101"), entry("102"))), block(content(entry("103")))


@pytest.fixture
def table(tmp_path):
    return HudiTable(str(unpack(GOLDEN, tmp_path)))


def archive_of(tmp_path, **files):
    folder = tmp_path / ".hoodie" / "archived"
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / NAME.format(name.strip("_"))).write_bytes(data)
    files = TableFolder("file", str(tmp_path), fsspec.filesystem("file"), 60)
    return Archive(files, ".hoodie/archived")


def test_all_that_was_finished_is_read_wherever_its_writer_stopped():
    whole = FIRST + SECOND
    assert times(whole) == ["101", "102", "103"]
    for cut in range(len(whole)):
        done = ["101", "102"] if cut >= len(FIRST) else []
        assert times(whole[:cut]) == done


@pytest.mark.parametrize("cut", [1, 7, 20, 60, len(FIRST) - 1])
def test_what_was_appended_to_an_unfinished_block_is_read(cut):
    assert times(SECOND + FIRST[:cut] + SECOND) == ["103", "103"]


def test_other_kinds_of_blocks_and_an_empty_file_hold_nothing():
    assert times(block(content(entry("1")), kind=1) + SECOND) == ["103"]
    assert times(b"") == []


def test_instants_are_listed_once_at_their_end(tmp_path):
    states = [entry("101", state=state) for state in ("REQUESTED", "INFLIGHT", "COMPLETED")]
    again = block(content(*states))
    archived = archive_of(tmp_path, _9=again, _10=again + block(content(entry("099", "clean"))))
    last = NAME.format(10)
    assert archived.instants() == (
        Instant("099", "clean", State.COMPLETED, last),
        Instant("101", "commit", State.COMPLETED, last),
    )
    assert all(instant.archived for instant in archived.instants())


def test_an_archive_begun_before_hudi_0_5_1_is_read(tmp_path):
    head = schema_of("commitTime", "actionType")
    old = block(content(text("099") + text("commit")), head)
    archived = archive_of(tmp_path, _1=old + SECOND)
    assert [(one.time, one.state) for one in archived.instants()] == [
        ("099", State.COMPLETED),
        ("103", State.COMPLETED),
    ]


def test_entries_without_a_time_or_an_action_are_passed_over():
    timeless = text(None) + text("commit") + text(None)
    actionless = text("1") + text(None) + text(None)
    assert times(block(content(timeless, actionless, entry("2")))) == ["2"]


def test_records_that_cannot_have_a_time_are_an_error(tmp_path):
    archived = archive_of(tmp_path, _1=block(content(text("commit")), schema_of("actionType")))
    with pytest.raises(MetadataCorruptError, match="commitTime"):
        archived.instants()


@pytest.mark.parametrize(
    "damaged",
    [
        b"no archive",
        block(content(entry("1")), version=2),
        block(content(entry("1"), version=9)),
        block(content(entry("1")), header(entries=1 << 30)),
        block(content(entry("1")), header(length=1 << 30)),
        block(content(entry("1")), header(b"{" * 9999)),
        block(struct.pack(">iii", 3, 1, 1 << 30)),
        block(struct.pack(">ii", 3, 1 << 30) + content(entry("1"))[8:]),
        block(content(entry("1", state="DONE"))),
        block(content(entry("x"))),
        block(content(b"\2")),
    ],
    ids=range(11),
)
def test_what_no_hudi_writes_is_an_error_and_takes_no_memory(tmp_path, damaged):
    archived = archive_of(tmp_path, _1=damaged)
    tracemalloc.start()
    with pytest.raises(MetadataCorruptError, match=r"archive\.1_1-0-1 cannot be decoded"):
        archived.instants()
    assert tracemalloc.get_traced_memory()[1] < 50_000_000
    tracemalloc.stop()


def test_a_file_longer_than_a_chunk_is_read_the_same(table, monkeypatch):
    before = table.snapshot()
    read = {one: before.reader.commit(one) for one in before.history() if one.is_write}
    monkeypatch.setattr(archive, "_CHUNK_BYTES", 7000)
    after = table.snapshot()
    assert {one: after.reader.commit(one) for one in after.history() if one.is_write} == read
    assert len(read) == 12


def merge(table, *numbers):
    folder = Path(table.path) / ".hoodie" / "archived"
    files = [folder / NAME.format(number) for number in numbers]
    (folder / NAME.format(20)).write_bytes(b"".join(file.read_bytes() for file in files))
    for file in files:
        file.unlink()


def test_instants_that_were_merged_into_another_file_are_found_there(table):
    snapshot = table.snapshot()
    writes = [instant for instant in snapshot.history() if instant.is_write]
    merge(table, 1, 2, 3, 4, 5, 6, 7, 8)
    assert len({snapshot.reader.commit(one).extra["_airflow_identity"] for one in writes}) == 12


def test_a_file_that_stays_lost_is_an_error(table, monkeypatch):
    listed = TableFolder.listing

    def stale(files, folder):
        found = listed(files, folder)
        return found if "archived" not in folder else type(found)([NAME.format(99)], found.modified)

    monkeypatch.setattr(TableFolder, "listing", stale)
    with pytest.raises(TableUnreadableError, match="disappeared twice while the archive was read"):
        table.snapshot().history()


def test_an_earlier_try_is_found_in_the_archive_of_version_6(table):
    snapshot = table.snapshot()
    commit = find_commit(snapshot, f"{9:032}")
    assert (commit.instant.archived, commit.metadata.operation_type) == (True, "INSERT")
    assert find_commit(snapshot, "f" * 32) is None
    assert earlier_commit(table, ["f" * 32]) is None


def test_archive_files_older_than_the_search_are_not_read(table, monkeypatch):
    files = sorted((Path(table.path) / ".hoodie" / "archived").glob(".commits_*"))
    signed = f"{9:032}"
    (home,) = {find_commit(table.snapshot(), signed).instant.file_name}
    for file in files:
        os.utime(file, (1, 1))
    os.utime(Path(table.path) / ".hoodie" / "archived" / home)
    read = []
    original = Archive._entries
    monkeypatch.setattr(
        Archive, "_entries", lambda archived, file: read.append(file) or original(archived, file)
    )
    snapshot = table.snapshot()
    assert find_commit(snapshot, signed, TableBefore(moment_ms=2000))
    assert read == [home]
    assert len({one.file_name for one in snapshot.history()}) == len(files)


@pytest.mark.parametrize("zone_minutes", [-720, -210, 0, 120, 330, 840])
@pytest.mark.parametrize("took_s", [-3, 3, 2_400, 86_400])
def test_a_completion_is_read_in_the_zone_of_its_request(zone_minutes, took_s):
    """Hudi archives it in the zone of the writer's JVM, and when it was requested in the same."""
    time, zone_ms = "20261121100000000", zone_minutes * 60_000
    position = RecordPosition("file", 0, 0, "")
    at = {State.REQUESTED: 200, State.COMPLETED: took_s * 1000}
    entries = [
        Entry(time, "commit", state, from_naive_ms(naive_ms(time) + zone_ms + after_ms), position)
        for state, after_ms in at.items()
    ]
    (instant,) = instants_of(entries)
    assert instant.completion_time == from_naive_ms(naive_ms(time) + took_s * 1000)
    (alone,) = instants_of(entries[1:])
    assert alone.completion_time == entries[1].changed
