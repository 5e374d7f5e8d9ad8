from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_occ_provider.attempts.commit import (
    MOST_BEFORE,
    earlier_commit,
    find_commit,
    run_commits,
    table_before,
)
from airflow_occ_provider.attempts.log.driver_log import DriverLog
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.record import TableBefore
from airflow_occ_provider.attempts.settle import settle
from airflow_occ_provider.errors import (
    CommitStateUnknownError,
    ConfigurationError,
    FailedAfterCommitError,
    MetadataCorruptError,
    NotHudiTableError,
    StorageDeniedError,
    TableUnreadableError,
    UnknownTableVersionError,
)
from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.storage.folder import TableFolder
from airflow_occ_provider.storage.instant_reader import InstantReader
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.hand_made_tables import BEFORE, SIGNATURE, T0, T1, T2, C, add, archive, begin, log_of
from tests.support.table_properties import table_properties
from tests.unit.conftest import PROPERTIES
from tests.unit.reports import cause, fact


def test_a_table_that_does_not_exist_yet(tmp_path):
    table = HudiTable(str(tmp_path / "none"))
    assert not table.config().exists
    assert list(table.snapshot(missing_ok=True).timeline) == []
    assert find_commit(table.snapshot(missing_ok=True), "me") is None


def test_the_backup_of_the_properties_serves_while_they_are_rewritten(folder, table):
    (folder / "hoodie.properties").rename(folder / "hoodie.properties.backup")
    assert table.config().name == "t"


@pytest.mark.parametrize(
    "spelling", ["memory://lake//t/", "memory://lake/./t", "Memory://lake/x/../t/."]
)
def test_a_table_is_found_where_hadoop_finds_it(spelling):
    store = MemoryFileSystem()
    store.pipe("/lake/t/.hoodie/hoodie.properties", PROPERTIES.encode())
    try:
        assert HudiTable(spelling, store).config().name == "t"
    finally:
        store.rm("/lake", recursive=True)


def test_layout_1_keeps_its_timeline_beside_the_properties(folder, table):
    text = table_properties(version=6, layout=1, timeline__path="timeline")
    (folder / "hoodie.properties").write_text(text)
    (folder / f"{T1}.commit").write_text("{}")
    assert [instant.time for instant in table.snapshot().timeline] == [T1]


def test_what_left_the_timeline_is_not_kept_in_memory(folder, table):
    for time in (T0, T1):
        add(folder, f"{time}_{C}.commit", identity="me")
    snapshot = table.snapshot()
    kept = {one: snapshot.reader.commit(one) for one in snapshot.timeline}
    (folder / "timeline" / f"{T0}_{C}.commit").unlink()
    later = table.snapshot(snapshot)
    first, second = kept
    assert later.reader.commit(second) is kept[second]
    assert later.reader.commit(first) is None


def threads_of_this_thread(monkeypatch):
    """Return the names of the threads that this one starts from now on."""
    names, start, this = [], threading.Thread.start, threading.current_thread()

    def counted(thread):
        if threading.current_thread() is this:
            names.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    return names


def test_the_times_of_layout_1_are_one_request(folder, table, monkeypatch):
    layout_1 = table_properties(version=6, layout=1)
    (folder / "hoodie.properties").write_text(layout_1)
    for number in range(50):
        (folder / f"202611210925{number:02}000.commit").write_text("{}")
    started = threads_of_this_thread(monkeypatch)
    timeline = table.snapshot().timeline
    assert all(instant.completion_time for instant in timeline)
    assert len(timeline.instants) == 50
    assert len(started) < 10


@pytest.mark.parametrize(("layout", "requests"), [(1, 2), (2, 1)])
def test_a_refresh_without_news_is_a_listing_and_in_layout_1_the_time_of_the_properties(
    folder, table, monkeypatch, layout, requests
):
    version = 6 if layout == 1 else 9
    (folder / "hoodie.properties").write_text(table_properties(version=version, layout=layout))
    shutil.rmtree(folder / "timeline")
    name = f"{T0}.commit" if layout == 1 else f"timeline/{T0}_{C}.commit"
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("{}")
    last = table.snapshot(table.snapshot())
    started = threads_of_this_thread(monkeypatch)
    assert table.snapshot(last).timeline is last.timeline
    assert len(last.timeline.instants) == 1
    assert len(started) == requests


def test_an_unknown_storage_is_refused():
    with pytest.raises(ConfigurationError, match=r"^table.*Remedy"):
        HudiTable("nosuch://lake/t")


def test_an_unreadable_commit_is_its_own_error_never_no_commit(folder, table):
    (folder / "timeline" / f"{T1}_{C}.commit").write_bytes(b"Obj\x01cut")
    with pytest.raises(TableUnreadableError, match=rf"{T1}_{C}.commit"):
        find_commit(table.snapshot(), "me")
    assert settle(table, SIGNATURE, log_of(T1), 0).outcome is Outcome.UNKNOWN


def test_a_commit_that_is_archived_between_listing_and_read_is_found(folder, table):
    add(folder, f"{T0}_{C}.commit")
    add(folder, f"{T1}_{C}.commit", identity="me")
    add(folder, f"{T2}_{C}.commit")
    snapshot = table.snapshot()
    archive(folder, T0, T1)
    assert find_commit(snapshot, "me", BEFORE).instant.time == T1


def test_an_unsigned_commit_that_is_archived_between_listing_and_read_is_reported(
    folder, table, monkeypatch
):
    add(folder, f"{T0}_{C}.commit")
    add(folder, f"{T1}_{C}.commit")
    stale, look = iter([table.snapshot()]), HudiTable.snapshot
    archive(folder, T0, T1)
    monkeypatch.setattr(HudiTable, "snapshot", lambda *a, **k: next(stale, None) or look(*a, **k))
    with pytest.raises(CommitStateUnknownError, match="not signed"):
        earlier_commit(table, ("me",), BEFORE, [T1])


def test_a_commit_that_an_upgrade_moves_between_listing_and_read_is_found(folder, table):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    add(folder, f"{T0}_{C}.commit")
    add(folder, f"{T1}_{C}.commit", identity="me")
    for time in (T0, T1):
        (folder / "timeline" / f"{time}_{C}.commit").rename(folder / f"{time}.commit")
    snapshot = table.snapshot()
    for time in (T0, T1):
        (folder / f"{time}.commit").rename(folder / "timeline" / f"{time}_{C}.commit")
    with pytest.raises(TableUnreadableError, match="is being upgraded"):
        find_commit(snapshot, "me", BEFORE)
    (folder / "hoodie.properties").write_text(PROPERTIES)
    assert find_commit(snapshot, "me", BEFORE).instant.time == T1


def test_a_commit_that_is_rolled_back_between_listing_and_read_is_none(folder, table):
    add(folder, f"{T0}_{C}.commit")
    add(folder, f"{T1}_{C}.commit", identity="me")
    snapshot = table.snapshot()
    (folder / "timeline" / f"{T1}_{C}.commit").unlink()
    assert find_commit(snapshot, "me", BEFORE) is None


def test_a_savepoint_keeps_an_old_commit_active_while_ours_is_archived(folder, table):
    add(folder, f"{T0}_{C}.commit")
    (folder / "timeline" / f"{T0}_{C}.savepoint").write_bytes(b"")
    add(folder, f"{T1}_{C}.commit", identity="me")
    archive(folder, T1)
    assert find_commit(table.snapshot(), "me", BEFORE).instant.time == T1


def test_files_that_keep_vanishing_are_an_error_never_no_commit(folder, table, monkeypatch):
    add(folder, f"{T1}_{C}.commit", identity="me")
    monkeypatch.setattr(InstantReader, "commit", lambda *_: None)
    with pytest.raises(TableUnreadableError, match="keep vanishing"):
        find_commit(table.snapshot(), "me")


def test_an_empty_completed_file_is_damaged_never_no_commit(folder, table):
    (folder / "timeline" / f"{T1}_{C}.commit").touch()
    with pytest.raises(MetadataCorruptError, match=rf"{T1}_{C}\.commit"):
        find_commit(table.snapshot(), "me", BEFORE)
    with pytest.raises(MetadataCorruptError):
        earlier_commit(table, ("me",), BEFORE, [T1])
    assert settle(table, SIGNATURE, log_of(T1), 0).outcome is Outcome.UNKNOWN


GOLDEN = Path(__file__).parents[1] / "golden" / "tables"


@pytest.mark.parametrize("release", ["1.0.2", "1.2.0"])
def test_a_refresh_of_a_table_that_was_upgraded_is_a_cold_read(tmp_path, release):
    path = unpack(GOLDEN / "0.15.0" / "operations.zip", tmp_path)
    table = HudiTable(str(path))
    before = table.snapshot(table.snapshot())
    assert (before.config.version, before.config.timeline_folder) == (6, ".hoodie")
    shutil.rmtree(path)
    unpack(GOLDEN / release / "upgraded.zip", tmp_path)
    after, cold = table.snapshot(before), HudiTable(str(path)).snapshot()
    assert after.config.version == cold.config.version == (8 if release == "1.0.2" else 9)
    assert after.timeline.instants == cold.timeline.instants
    for instant in cold.timeline.completed_writes():
        assert after.reader.commit(instant) == cold.reader.commit(instant)


def make_version_6(folder):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))


def move(folder, time, *, back=False):
    """Move a completed commit as an upgrade does, or ``back`` as a downgrade does."""
    names = [folder / f"{time}.commit", folder / "timeline" / f"{time}_{C}.commit"]
    source, target = reversed(names) if back else names
    source.rename(target)


@pytest.mark.parametrize("release", ["1.0.2", "1.2.0"])
def test_a_fresh_look_refuses_a_table_whose_upgrade_has_moved_its_commits(tmp_path, release):
    path = unpack(GOLDEN / release / "upgraded.zip", tmp_path)
    make_version_6(path / ".hoodie")
    table = HudiTable(str(path))
    with pytest.raises(TableUnreadableError, match=r"is being upgraded.*\.hoodie/timeline"):
        table.snapshot()
    with pytest.raises(TableUnreadableError, match="is being upgraded"):
        earlier_commit(table, ("me",))
    settlement = settle(table, SIGNATURE, DriverLog(), 0)
    assert (settlement.outcome, settlement.error().committed) == (Outcome.UNKNOWN, None)


@pytest.mark.parametrize("refresh", [False, True])
def test_a_timeline_that_an_upgrade_has_half_moved_is_refused(folder, table, refresh):
    make_version_6(folder)
    for time in (T0, T1):
        add(folder, f"{time}_{C}.commit", identity="me")
        move(folder, time, back=True)
    previous = table.snapshot() if refresh else None
    move(folder, T1)
    with pytest.raises(TableUnreadableError, match="is being upgraded"):
        table.snapshot(previous)
    (folder / "hoodie.properties").write_text(PROPERTIES)
    move(folder, T0)
    assert [instant.time for instant in table.snapshot(previous).timeline] == [T0, T1]


@pytest.mark.parametrize("times", [(), (T0,)])
def test_an_upgrade_that_ends_before_the_listing_is_seen_at_once(folder, table, monkeypatch, times):
    for time in times:
        add(folder, f"{time}_{C}.commit")
    older = {"hoodie.table.version": "6", "hoodie.timeline.layout.version": "1"}
    before = TableConfig({**table.config().properties, **older})
    answers, read = iter([before]), HudiTable.config
    monkeypatch.setattr(HudiTable, "config", lambda t: next(answers, None) or read(t))
    snapshot = table.snapshot()
    assert (snapshot.config.version, snapshot.config.timeline_folder) == (9, ".hoodie/timeline")
    assert [instant.time for instant in snapshot.timeline] == list(times)


@pytest.mark.parametrize("entry", [False, True])
def test_version_6_made_by_1_x_costs_a_listing_more_only_with_a_timeline_folder(
    tmp_path, monkeypatch, entry
):
    path = unpack(GOLDEN / "1.2.0" / "version_6.zip", tmp_path)
    if entry:
        (path / ".hoodie" / "timeline" / "history").mkdir(parents=True)
    asked, listing, read = [], TableFolder.listing, TableFolder.read
    monkeypatch.setattr(TableFolder, "listing", lambda f, n: (asked.append(n), listing(f, n))[1])
    monkeypatch.setattr(TableFolder, "read", lambda f, n: (asked.append(n), read(f, n))[1])
    table = HudiTable(str(path))
    snapshot = table.snapshot()
    look = [".hoodie", *([".hoodie/timeline"] if entry else [])]
    assert asked == [".hoodie/hoodie.properties", *look]
    refreshed = table.snapshot(snapshot)  # reads the properties again, their time now being known
    asked.clear()
    assert table.snapshot(refreshed).timeline.instants == snapshot.timeline.instants != ()
    assert asked == look


@pytest.mark.parametrize("refresh", [False, True])
def test_a_timeline_that_a_downgrade_has_moved_is_refused(folder, table, refresh):
    add(folder, f"{T1}_{C}.commit", identity="me")
    previous = table.snapshot() if refresh else None
    move(folder, T1, back=True)
    with pytest.raises(
        TableUnreadableError, match=r"is being downgraded.*already has instants in \.hoodie"
    ):
        table.snapshot(previous)
    make_version_6(folder)
    assert find_commit(table.snapshot(previous), "me").instant.time == T1


def test_a_table_without_instants_in_either_folder_is_an_empty_one(folder, table):
    snapshot = table.snapshot()
    assert table.snapshot(snapshot).timeline.instants == ()


def test_the_properties_are_read_again_when_they_are_old_or_were_written(folder, table, monkeypatch):
    add(folder, f"{T1}_{C}.commit")
    read, original = [], HudiTable._read_config
    monkeypatch.setattr(HudiTable, "_read_config", lambda t: (read.append(1), original(t))[1])
    snapshot = table.snapshot()
    for _ in range(3):
        snapshot = table.snapshot(snapshot)
    assert table.snapshot().config == table.config() == snapshot.config
    assert len(read) == 1
    (folder / "hoodie.properties").write_text(table_properties(version=8))
    assert table.snapshot(snapshot).config.version == table.snapshot().config.version == 9
    assert table.snapshot(snapshot, max_age_s=0).config.version == 8


def test_in_layout_1_the_listing_shows_that_the_properties_were_written(folder, table):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    (folder / f"{T1}.commit").write_text("{}")
    snapshot = table.snapshot()
    (folder / "hoodie.properties").write_text(table_properties(version=5, layout=1))
    os.utime(folder / "hoodie.properties", (1, 1))
    assert table.snapshot(snapshot).config.version == 5


def test_a_table_that_is_removed_after_the_first_look_is_not_an_empty_one(folder, table):
    snapshot = table.snapshot()
    shutil.rmtree(folder)
    with pytest.raises(NotHudiTableError):
        table.snapshot(snapshot)


def test_a_table_that_is_made_after_the_first_look_is_seen(folder, table):
    (folder / "hoodie.properties").rename(folder.parent / "aside")
    shutil.rmtree(folder)
    snapshot = table.snapshot(missing_ok=True)
    (folder / "timeline").mkdir(parents=True)
    (folder.parent / "aside").rename(folder / "hoodie.properties")
    add(folder, f"{T1}_{C}.commit")
    assert table.snapshot(snapshot).timeline.latest_completed_write == T1


def test_a_table_that_was_removed_and_made_again_keeps_nothing_of_the_old_one(folder, table):
    add(folder, f"{T1}_{C}.commit")
    assert table.snapshot().config.version == 9
    folder.rename(folder.parent / "aside")
    assert not table.snapshot(missing_ok=True).config.exists
    assert not table.config().exists
    (folder.parent / "aside").rename(folder)
    (folder / "hoodie.properties").write_text(table_properties(version=8))
    assert table.snapshot().config.version == table.config().version == 8


def test_only_write_commits_count(folder, table):
    add(folder, f"{T1}_{C}.commit", identity="me")
    add(folder, f"{T2}_{C}.commit", identity="me", operation="COMPACT")
    assert find_commit(table.snapshot(), "me").instant.time == T1
    assert find_commit(table.snapshot(), "another writer") is None


def test_a_committed_attempt(folder, table):
    add(folder, f"{T1}_{C}.commit", identity="me")
    settlement = settle(table, SIGNATURE, DriverLog(), 0)
    assert settlement.outcome is Outcome.COMMITTED
    assert settlement.error() is None
    facts = settlement.commit.facts()
    assert facts["instant"] == T1
    assert facts["partitions"] == ["p=1", "p=2", "p=3"]
    assert (facts["file_groups"], facts["records"]) == (4, 15)


def test_a_driver_killed_after_its_commit_may_have_left_work_undone(folder, table):
    begin(folder, T1)
    add(folder, f"{T1}_{C}.commit", identity="me")
    error = settle(table, SIGNATURE, DriverLog(), -9).error()
    assert isinstance(error, FailedAfterCommitError)
    assert (error.retry, error.committed) == (False, True)


def test_an_error_after_the_commit_is_an_error_that_says_committed(folder, table):
    add(folder, f"{T1}_{C}.commit", identity="me")
    settlement = settle(table, SIGNATURE, DriverLog(), 1)
    assert settlement.outcome is Outcome.COMMITTED
    assert settlement.error().committed is True


def test_what_an_earlier_try_completed_without_a_signature_is_not_run_again(folder, table):
    add(folder, f"{T1}_{C}.commit")
    assert earlier_commit(table, ("me",), BEFORE) is None
    with pytest.raises(CommitStateUnknownError, match="not signed"):
        earlier_commit(table, ("me",), BEFORE, [T1])


def test_an_older_signature_of_the_same_work_counts_too(folder, table):
    add(folder, f"{T1}_{C}.commit", identity="me before")
    table.snapshot()
    assert len(run_commits(table.snapshot(), ("me", "me before"), BEFORE)) == 1
    assert run_commits(table.snapshot(), ("me",), BEFORE) == []


def test_a_table_that_is_gone_is_not_an_empty_one(tmp_path):
    table = HudiTable(str(tmp_path / "gone"))
    assert earlier_commit(table, ("me",)) is None
    with pytest.raises(NotHudiTableError):
        earlier_commit(table, ("me",), must_exist=True)


def test_a_completed_instant_of_ours_without_signature_is_unknown(folder, table):
    add(folder, f"{T1}_{C}.commit")
    settlement = settle(table, SIGNATURE, log_of(T1), 0)
    assert settlement.outcome is Outcome.UNKNOWN
    assert settlement.error().committed is None


def test_no_new_instant_is_nothing_written_though_another_writer_wrote(folder, table):
    add(folder, f"{T1}_{C}.commit", identity="neighbour")
    assert settle(table, SIGNATURE, log_of(), 0).outcome is Outcome.NOTHING_WRITTEN


def test_an_instant_of_another_table_is_not_ours(folder, table):
    begin(folder, T2)
    log = log_of(T1)
    made = f"/elsewhere/.hoodie/timeline/{T1}.inflight"
    log.take(f"x INFO ActiveTimelineV2: Create new file for toInstant ?{made}")
    settlement = settle(table, SIGNATURE, log, 0)
    assert settlement.outcome is Outcome.NOTHING_WRITTEN
    assert settlement.own_writes.elsewhere == ((T1, "/elsewhere"),)
    assert (folder / ".heartbeat" / T2).exists()


def test_a_ghost_is_retired_and_another_writer_is_not(folder, table):
    begin(folder, T1)
    begin(folder, T2)
    settlement = settle(table, SIGNATURE, log_of(T1), 137)
    assert settlement.outcome is Outcome.KILLED
    assert settlement.retired == (T1,)
    assert sorted(path.name for path in (folder / ".heartbeat").iterdir()) == [f".{T2}.crc", T2]


def test_a_job_that_swallows_its_failed_write_did_not_end_well(folder, table):
    begin(folder, T1)
    settlement = settle(table, SIGNATURE, log_of(T1), 0)
    assert settlement.outcome is Outcome.JOB_ERROR
    log = log_of(T1)
    log.take(
        f"org.x: first operation = ConcurrentOperation(instantTime={T1}), "
        f"second operation = ConcurrentOperation(instantTime={T2})"
    )
    settlement = settle(table, SIGNATURE, log, 0)
    assert (settlement.outcome, settlement.rival) == (Outcome.COMMIT_CONFLICT, T2)
    assert settlement.error().retry


@pytest.mark.parametrize("own", [T1, "20261101000000000"])
def test_a_commit_is_found_whatever_its_time_says_beside_those_of_others(folder, table, own):
    """Writers' clocks differ, and a table in local time has instants of several zones."""
    ahead = "20271121092507982"
    add(folder, f"{ahead}_{C}.commit", identity="neighbour")
    before = table_before(table.snapshot())
    assert find_commit(table.snapshot(), "me", before) is None
    add(folder, f"{own}_{C}.commit", identity="me")
    assert find_commit(table.snapshot(), "me", before).instant.time == own
    assert settle(table, SIGNATURE, log_of(own), 0, before=before).commit.instant.time == own
    assert len(run_commits(table.snapshot(), ("me",), before)) == 1
    archive(folder, own)
    assert find_commit(table.snapshot(), "me", before).instant.time == own
    assert find_commit(table.snapshot(), "me", before, [own]).instant.archived


def test_commits_that_were_there_before_are_not_read(folder, table, monkeypatch):
    read, commit = [], InstantReader.commit
    monkeypatch.setattr(InstantReader, "commit", lambda r, i: read.append(i.time) or commit(r, i))
    for time in (T0, T2):
        add(folder, f"{time}_{C}.commit", identity="me")
    before = table_before(table.snapshot())
    add(folder, f"{T1}_{C}.commit", identity="neighbour")
    assert find_commit(table.snapshot(), "me", before) is None
    assert read == [T1]
    assert find_commit(table.snapshot(), "me").instant.time == T2


def test_a_reported_commit_is_read_first_and_alone(folder, table, monkeypatch):
    read, commit = [], InstantReader.commit
    monkeypatch.setattr(InstantReader, "commit", lambda r, i: read.append(i.time) or commit(r, i))
    for time in (T0, T1, T2):
        add(folder, f"{time}_{C}.commit", identity="me" if time == T0 else "neighbour")
    assert find_commit(table.snapshot(), "me", reported=[T0]).instant.time == T0
    assert read == [T0]


def test_a_damaged_commit_of_before_is_nobodys_and_a_later_one_may_be_ours(folder, table):
    (folder / "timeline" / f"{T0}_{C}.commit").touch()
    before = table_before(table.snapshot())
    add(folder, f"{T1}_{C}.commit", identity="neighbour")
    assert find_commit(table.snapshot(), "me", before) is None
    assert settle(table, SIGNATURE, log_of(), 1, before=before).unreadable is None
    (folder / "timeline" / f"{T2}_{C}.commit").touch()
    assert settle(table, SIGNATURE, log_of(), 1, before=before).unreadable
    ours = f"{T1[:-1]}{(int(T1[-1]) + 1) % 10}"
    add(folder, f"{ours}_{C}.commit", identity="me")
    assert find_commit(table.snapshot(), "me", before).instant.time == ours


def test_an_unreadable_history_matters_only_if_it_can_have_the_commit(folder, table):
    add(folder, f"{T0}_{C}.commit")
    os.utime(folder / "timeline" / f"{T0}_{C}.commit", (1_700_000_000,) * 2)
    before = table_before(table.snapshot())
    history = folder / "timeline" / "history"
    history.mkdir(exist_ok=True)
    damaged = history / "1_2_0.parquet"
    damaged.write_bytes(b"no parquet")
    (history / "manifest_1").write_text('{"files": [{"fileName": "1_2_0.parquet", "fileLen": 1}]}')
    (history / "_version_").write_text("1")
    with pytest.raises(TableUnreadableError):
        find_commit(table.snapshot(), "me", before)
    begin(folder, T1)
    assert find_commit(table.snapshot(), "me", before, [T1]) is None
    with pytest.raises(TableUnreadableError):  # one of them is gone
        find_commit(table.snapshot(), "me", before, [T1, T2])
    os.utime(damaged, (1_600_000_000,) * 2)
    assert find_commit(table.snapshot(), "me", before) is None


def test_what_a_table_had_is_a_small_value(folder, table):
    for number in range(MOST_BEFORE + 5):
        (folder / "timeline" / f"{number:017}_{C}.commit").touch()
    before = table_before(table.snapshot())
    assert len(before.commits) == MOST_BEFORE
    assert len(json.dumps(before.to_json())) < 25_000
    assert TableBefore.from_json(json.loads(json.dumps(before.to_json()))) == before
    assert before.moment_ms > 0


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "is empty"),
        ("hoodie.table.name=t\n", "has no hoodie.table.checksum, hoodie.table.type"),
        (PROPERTIES[:-1], "is cut off"),
        (PROPERTIES.replace("name=t\n", "name=u\n"), "has the wrong checksum"),
        (None, "is missing"),
    ],
)
def test_half_written_properties_are_an_error_never_no_table(folder, table, content, fault):
    add(folder, f"{T1}_{C}.commit", identity="me")
    if content is None:
        (folder / "hoodie.properties").unlink()
    else:
        (folder / "hoodie.properties").write_text(content)
    with pytest.raises(TableUnreadableError, match=f"hoodie.properties {fault}"):
        table.snapshot()
    (folder / "hoodie.properties.backup").write_text(PROPERTIES)
    assert find_commit(table.snapshot(), "me").instant.time == T1


@pytest.mark.parametrize("version", ["", "\\u00b2", "10", "1", "-9", "9" * 5000])
def test_a_table_version_that_is_none_of_hudis_is_our_own_error(folder, table, version):
    text = PROPERTIES.replace("table.version=9", f"table.version={version}")
    (folder / "hoodie.properties").write_text(text)
    with pytest.raises(UnknownTableVersionError, match="has table version"):
        table.snapshot()


@pytest.mark.parametrize(
    ("version", "remedy"), [("10", "auto.upgrade=false"), ("1", "upgrade the table")]
)
def test_an_unsupported_version_is_named_with_the_way_out(folder, table, version, remedy):
    text = PROPERTIES.replace("table.version=9", f"table.version={version}")
    (folder / "hoodie.properties").write_text(text)
    said = f"has table version {version}, which is not supported; supported are table versions 2 to 9"
    with pytest.raises(UnknownTableVersionError, match=said) as raised:
        table.snapshot()
    assert remedy in raised.value.remedy


@pytest.mark.parametrize("version", [2, 3])
def test_versions_without_a_checksum_are_read(folder, table, version):
    text = table_properties(version=version, layout=1, table__checksum="")
    lines = [line for line in text.splitlines() if "checksum" not in line and "layout" not in line]
    (folder / "hoodie.properties").write_text("\n".join(lines) + "\n")
    (folder / f"{T1}.commit").write_text("{}")
    snapshot = table.snapshot()
    assert (snapshot.config.version, snapshot.config.layout_version) == (version, 1)
    assert [one.time for one in snapshot.timeline] == [T1]


def test_a_checksum_that_stays_missing_is_no_cut_off_file(folder, table):
    lines = [line for line in PROPERTIES.splitlines() if "checksum" not in line]
    (folder / "hoodie.properties").write_text("\n".join(lines) + "\n")
    assert table.snapshot().config.version == 9


@pytest.mark.parametrize("key", ["timeline__path", "timeline__history__path"])
def test_no_path_in_the_properties_leads_out_of_the_table(folder, table, key):
    (folder / "hoodie.properties").write_text(table_properties(**{key: "../.."}))
    with pytest.raises(MetadataCorruptError, match=r"\.\./\.\.', which is outside of the table"):
        table.snapshot().history()


@pytest.mark.parametrize(
    ("error", "denied"),
    [
        (PermissionError("Forbidden"), True),
        (type("HttpError", (Exception,), {"code": 403})("gcsfs"), True),
        (type("HttpResponseError", (Exception,), {"status_code": 401})("adlfs"), True),
        (RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "...")'), True),
        (PermissionError("The provided token has expired."), False),
        (type("HttpError", (Exception,), {"code": 503})("slow down"), False),
    ],
)
def test_what_the_storage_forbids_is_not_tried_again(error, denied):
    class Refusing(MemoryFileSystem):
        def cat_file(self, *_, **__):
            raise error

    with pytest.raises(TableUnreadableError, match=r"hoodie\.properties cannot be read") as raised:
        HudiTable("memory://lake/t", Refusing()).snapshot()
    assert isinstance(raised.value, StorageDeniedError) is denied
    assert raised.value.retry is not denied


def test_a_table_that_cannot_be_read_after_the_attempt_is_asked_again(folder, table):
    (folder / "hoodie.properties").write_text("")
    error = settle(table, SIGNATURE, log_of(T1), 0).error()
    assert isinstance(error, TableUnreadableError)
    assert "commit state unknown" in error.message
    assert (error.committed, error.retry) == (None, True)


def test_a_table_that_is_gone_after_the_attempt_is_asked_for_again(tmp_path):
    error = settle(HudiTable(str(tmp_path / "gone")), SIGNATURE, log_of(T1), 0).error()
    assert "commit state unknown" in error.message
    assert (error.committed, error.retry) == (None, True)


@pytest.mark.parametrize("is_reported", [True, False])
@pytest.mark.parametrize(
    "message",
    [
        f"HoodieIOException: Failed to create file /t/.hoodie/timeline/{T1}.commit.requested",
        f"FileAlreadyExistsException: s3a://t/.hoodie/{T1}.deltacommit.requested already exists",
    ],
)
def test_the_heartbeat_of_a_writer_that_had_the_time_first_stays(folder, table, message, is_reported):
    begin(folder, T1)
    log = log_of(T1)
    kind, _, text = message.partition(": ")
    chain = fact("fatal", causes=[cause(f"org.apache.hudi.exception.{kind}", text)])
    log.take(chain if is_reported else f"Caused by: org.apache.hudi.exception.{message}")
    assert settle(table, SIGNATURE, log, 1, before=BEFORE).retired == ()
    assert (folder / ".heartbeat" / T1).exists()
    add(folder, f"{T1}_{C}.commit")  # the other writer's, without our signature
    assert settle(table, SIGNATURE, log, 1, before=BEFORE).outcome is not Outcome.UNKNOWN


def test_a_heartbeat_that_cannot_be_removed_does_not_hide_the_outcome(folder, table):
    begin(folder, T1)
    (folder / ".heartbeat" / T1).unlink()
    (folder / ".heartbeat" / T1).mkdir()
    settlement = settle(table, SIGNATURE, log_of(T1), 137)
    assert (settlement.outcome, settlement.retired) == (Outcome.KILLED, ())


def test_a_job_that_handled_its_conflict_and_then_failed_has_lost_it(folder, table):
    begin(folder, T1)
    log = log_of(T1)
    log.take(f"x first operation = O(instantTime={T1}), second operation = O(instantTime={T2})")
    log.take(fact("fatal", causes=[cause("KeyError", "1", jvm=False)]))
    assert settle(table, SIGNATURE, log, 1).outcome is Outcome.COMMIT_CONFLICT


def test_a_slow_look_of_another_thread_does_not_replace_a_newer_snapshot(folder, table):
    slow = table.snapshot()
    add(folder, f"{T1}_{C}.commit")
    newer = table.snapshot()
    assert table._kept(slow) is slow
    assert table.last_snapshot() is newer
