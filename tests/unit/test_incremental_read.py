"""What of a table's files a consumer is told to read, and with which options."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_occ_provider.errors import CheckpointLostError, ConfigurationError
from airflow_occ_provider.hudi.format.timeline import Timeline
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, CommitPosition, Order
from airflow_occ_provider.reading.new_commits import CommitFilter, new_commits
from airflow_occ_provider.storage.incremental import completed_writes, incremental_read
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.incremental_reads import write
from tests.support.table_properties import table_properties

TABLES = Path(__file__).parents[1] / "golden" / "tables"
T = [f"202611210925{number:02}000" for number in range(10)]
C = [f"202611210926{number:02}000" for number in range(10)]
READ_T0 = Checkpoint(Order.COMPLETED, "", (CommitPosition(T[0], C[0]),))
BY_REQUEST = Checkpoint(Order.REQUESTED, "", (CommitPosition(T[0], T[0]),))
INCREMENTAL = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "latest_state",
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "true",
}


@pytest.fixture
def layout_1(folder):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    return folder


def complete(folder, requested, completed, action="commit", service=""):
    timeline = folder / "timeline"
    (timeline / f"{requested}.{service or action}.requested").touch()
    (timeline / f"{requested}_{completed}.{action}").write_bytes(b"x")


def times(read):
    return [one.time for one in read.window.commits]


def test_the_first_window_is_a_scan_of_what_is_completed(folder, table):
    complete(folder, T[1], C[1])
    read = incremental_read(table)
    assert times(read) == [T[1]]
    assert read.scan == "it is the first window"
    assert read.options("1.2") == {"hoodie.datasource.query.type": "snapshot"}
    assert read.predicate == f"_hoodie_commit_time in ('{T[1]}')"


def test_the_archived_past_belongs_to_the_first_window(folder, table):
    (folder / "timeline" / "history" / "x.parquet").touch()
    complete(folder, T[1], C[1])
    assert f"_hoodie_commit_time < '{T[1]}'" in incremental_read(table).predicate


def test_by_completion_the_bounds_are_completion_times(folder, table):
    complete(folder, T[0], C[0])
    complete(folder, T[1], C[1])
    read = incremental_read(table, READ_T0)
    assert (times(read), read.scan) == ([T[1]], "")
    bounds = {
        "hoodie.datasource.read.begin.instanttime": C[0],
        "hoodie.datasource.read.end.instanttime": C[1],
        "hoodie.datasource.read.incr.table.version": "8",
    }
    assert read.options("1.2") == INCREMENTAL | bounds


@pytest.mark.parametrize(
    ("release", "more"),
    [
        ("0.15", {}),
        ("1.0", {"hoodie.datasource.read.incr.table.version": "6"}),
        ("1.2", {"hoodie.datasource.read.incr.table.version": "6"}),
    ],
)
def test_by_request_the_bounds_are_requested_times(layout_1, table, release, more):
    write(layout_1, T[0], completed=True)
    write(layout_1, T[1], completed=True)
    read = incremental_read(table, BY_REQUEST)
    assert (times(read), read.scan) == ([T[1]], "")
    bounds = {
        "hoodie.datasource.read.begin.instanttime": T[0],
        "hoodie.datasource.read.end.instanttime": T[1],
        "hoodie.read.timeline.holes.resolution.policy": "BLOCK",
    }
    assert read.options(release) == INCREMENTAL | bounds | more


@pytest.mark.parametrize("release", ["0.15", "1.0"])
def test_a_release_that_cannot_read_the_table_is_refused(folder, table, release):
    complete(folder, T[1], C[1])
    with pytest.raises(ConfigurationError, match=f"Hudi {release} reads tables up to version"):
        incremental_read(table).options(release)


def test_a_live_writer_holds_a_table_of_layout_1_up(layout_1, table):
    write(layout_1, T[0], completed=True)
    write(layout_1, T[1], live=True)
    write(layout_1, T[2], completed=True)
    read = incremental_read(table, BY_REQUEST)
    assert (times(read), read.window.held_up_by) == ([], (T[1],))


def test_a_heartbeat_without_an_instant_is_that_of_a_write_that_is_about_to_begin(layout_1, table):
    write(layout_1, T[0], completed=True)
    (layout_1 / ".heartbeat" / T[1]).touch()
    write(layout_1, T[2], completed=True)
    assert incremental_read(table, BY_REQUEST).window.held_up_by == (T[1],)


@pytest.mark.parametrize("dead", [{"dead": True}, {}], ids=["expired", "removed"])
def test_a_dead_writer_does_not_but_cuts_hudis_reader_off(layout_1, table, dead):
    write(layout_1, T[0], completed=True)
    write(layout_1, T[1], **dead)
    write(layout_1, T[2], completed=True)
    read = incremental_read(table, BY_REQUEST)
    assert times(read) == [T[2]]
    assert read.scan == f"{T[1]} is pending, and Hudi's reader would end before it"


def test_a_window_that_ends_just_now_is_scanned_by_request(layout_1, table):
    write(layout_1, T[0], completed=True)
    write(layout_1, T[1], completed=True)
    os.utime(layout_1 / f"{T[1]}.commit")
    assert "may not be visible yet" in incremental_read(table, BY_REQUEST).scan


def real_table(tmp_path, name):
    """Return a table that Hudi made, and a checkpoint at which all but its last commit was read."""
    found = HudiTable(str(unpack(TABLES / f"{name}.zip", tmp_path / "real")))
    snapshot = found.snapshot()
    *read, last = snapshot.timeline.completed_writes()
    order = Order.of(snapshot.config)
    return found, Checkpoint(order).after(read, order), last.time


@pytest.fixture(params=["0.15.0", "1.2.0"])
def broken(request, tmp_path):
    """A table that Hudi archived beyond a savepoint, its archived writes and its active ones."""
    path = unpack(TABLES / request.param / "archived_beyond_savepoint.zip", tmp_path / "real")
    snapshot = HudiTable(str(path)).snapshot()
    archived = [one for one in snapshot.history() if one.is_write]
    return snapshot, archived, list(snapshot.timeline.completed_writes())


def test_a_timeline_with_a_savepoint_begins_after_the_hole(broken):
    snapshot, archived, (saved, first, *_) = broken
    assert saved.time < archived[-1].time < first.time
    assert snapshot.timeline.unbroken_since() == first.time
    alone = [one for one in snapshot.timeline if one.time == saved.time]
    assert Timeline(tuple(alone)).unbroken_since() == saved.time
    assert Timeline().unbroken_since() == ""


def test_the_first_window_has_what_was_archived_beyond_a_savepoint(broken):
    snapshot, archived, active = broken
    window = incremental_read(HudiTable(snapshot.path)).window
    assert [one.time for one in window.commits] == [one.time for one in active]
    assert max(one.time for one in archived) < window.archived_before


@pytest.mark.parametrize("number", range(8))
def test_no_window_and_no_watcher_loses_what_was_archived_beyond_a_savepoint(broken, number):
    snapshot, archived, active = broken
    order = Order.of(snapshot.config)
    writes = sorted([*archived, *active])
    read, unread = writes[: number + 1], {one.time for one in writes[number + 1 :]}
    named = Checkpoint(order).after(read, order, active=[one.time for one in read])
    for since in (named, Checkpoint(order, named.time)):
        assert {*times(incremental_read(HudiTable(snapshot.path), since))} == unread
        found = new_commits(snapshot, since, CommitFilter()).commits
        assert {commit.instant.time for commit in found} == unread


def test_what_was_pending_and_vanished_is_looked_for_in_the_archive(tmp_path):
    found, since, last = real_table(tmp_path, "1.2.0/history")
    late, *_ = (one for one in found.snapshot().history() if one.is_write)
    read = incremental_read(found, replace(since, pending=(late.time,)))
    assert times(read) == [late.time, last]
    assert read.scan == "commits of the window are archived"


def test_a_write_that_was_pending_and_rolled_back_is_not(tmp_path):
    found, since, last = real_table(tmp_path, "1.2.0/rollbacks")
    history = Path(found.path, ".hoodie", "timeline", "history")
    history.mkdir(exist_ok=True)
    (history / "unreadable.parquet").touch()  # to read it would fail
    (rolled_back,) = next(times for _, times in found.snapshot().rollbacks())
    read = incremental_read(found, replace(since, pending=(rolled_back,)))
    assert times(read) == [last]


def test_an_empty_checkpoint_is_none(folder, table):
    complete(folder, T[1], C[1])
    read = incremental_read(table, Checkpoint(Order.REQUESTED))
    assert read.scan == "it is the first window"


def test_a_table_without_hudis_columns_has_no_windows(folder, table):
    properties = folder / "hoodie.properties"
    properties.write_text(table_properties(populate__meta__fields="false"))
    complete(folder, T[0], C[0])
    for since in (None, READ_T0):
        with pytest.raises(ConfigurationError, match=r"populate.meta.fields=false, .*Remedy: read the"):
            incremental_read(table, since)
    properties.write_text(table_properties(populate__meta__fields="true"))
    assert times(incremental_read(HudiTable(table.path))) == [T[0]]


def test_an_unknown_release_is_refused(folder, table):
    complete(folder, T[1], C[1])
    with pytest.raises(ConfigurationError, match=r"'1\.1' is unknown"):
        incremental_read(table).options("1.1")


def test_an_overwrite_that_is_older_than_a_clustering_of_the_window_is_a_reason_to_scan(folder, table):
    complete(folder, T[0], C[0])
    complete(folder, T[1], C[2])
    complete(folder, T[4], C[1], "replacecommit", "clustering")
    (folder / "timeline" / f"{T[3]}.replacecommit.requested").touch()
    assert f"{T[3]} may replace files" in incremental_read(table, READ_T0).scan


def test_a_writer_that_began_between_two_listings_does(layout_1, table, monkeypatch):
    write(layout_1, T[0], completed=True)
    write(layout_1, T[2], completed=True)
    files = type(table.files)
    heartbeats = files.heartbeats

    def then_begin(self):
        found = heartbeats(self)
        write(layout_1, T[1])
        return found

    monkeypatch.setattr(files, "heartbeats", then_begin)
    assert incremental_read(table, BY_REQUEST).window.held_up_by == (T[1],)


def test_a_pending_clustering_does_not(tmp_path):
    found, since, last = real_table(tmp_path, "0.15.0/clustering")
    pending = [one.time for one in found.snapshot().timeline.pending_writes()]
    beats = Path(found.path, ".hoodie", ".heartbeat")
    beats.mkdir(exist_ok=True)
    for time_ in pending:
        (beats / time_).touch()
    assert max(pending) < last
    assert times(incremental_read(found, since)) == [last]


def test_a_table_that_was_made_anew_is_recognised(folder, table):
    complete(folder, T[3], C[3])
    with pytest.raises(CheckpointLostError, match="none of the last 1 commits") as raised:
        incremental_read(table, READ_T0)
    assert not raised.value.retry


def test_a_table_without_a_commit_has_nothing_to_read(table):
    read = incremental_read(table)
    assert (times(read), read.predicate) == ([], "false")


def test_a_commit_that_landed_late_is_scanned(layout_1, table):
    write(layout_1, T[0], completed=True)
    write(layout_1, T[1], completed=True)
    write(layout_1, T[2], completed=True)
    since = Checkpoint(Order.REQUESTED, "", (CommitPosition(T[0], T[0]), CommitPosition(T[2], T[2])))
    read = incremental_read(table, since)
    assert times(read) == [T[1]]
    assert read.scan == "a commit of the window became visible after later ones were read"


@pytest.mark.parametrize("name", ["clustering.requested", "replacecommit.requested"])
def test_what_may_replace_files_before_they_are_read_is_a_reason_to_scan(folder, table, name):
    complete(folder, T[0], C[0])
    complete(folder, T[2], C[1])
    (folder / "timeline" / f"{T[1]}.{name}").touch()
    assert incremental_read(table, READ_T0).scan == (
        f"{T[1]} may replace files of the window before they are read"
    )
    (folder / "timeline" / f"{T[1]}.{name}").rename(folder / "timeline" / f"{T[3]}.{name}")
    assert incremental_read(HudiTable(table.path), READ_T0).scan == ""


def test_a_replacement_of_the_window_itself_is_none(folder, table):
    complete(folder, T[0], C[0])
    complete(folder, T[1], C[1], "replacecommit")
    complete(folder, T[2], C[2])
    assert incremental_read(table, READ_T0).scan == ""


@pytest.mark.parametrize("completed", [None, C[3], C[5]])
def test_a_compaction_planned_while_a_commit_was_written_is_a_reason_to_scan(folder, table, completed):
    text = table_properties(table__type="MERGE_ON_READ")
    (folder / "hoodie.properties").write_text(text)
    complete(folder, T[0], C[0], "deltacommit")
    complete(folder, T[1], C[4], "deltacommit")
    if completed:
        complete(folder, T[2], completed, "commit", "compaction")
    else:
        (folder / "timeline" / f"{T[2]}.compaction.requested").touch()
    assert f"the compaction {T[2]} was planned" in incremental_read(table, READ_T0).scan


def test_a_compaction_planned_before_or_after_is_none(folder, table):
    (folder / "hoodie.properties").write_text(table_properties(table__type="MERGE_ON_READ"))
    complete(folder, T[0], C[0], "deltacommit")
    (folder / "timeline" / f"{T[1]}.compaction.requested").touch()
    complete(folder, T[2], C[4], "deltacommit")
    (folder / "timeline" / f"{C[5]}.compaction.requested").touch()
    assert incremental_read(table, READ_T0).scan == ""


def test_a_live_heartbeat_is_judged_by_the_rule(layout_1, table):
    write(layout_1, T[0], completed=True)
    write(layout_1, T[1], live=True)
    old = time.time() - 3600
    os.utime(layout_1 / ".heartbeat" / T[1], (old, old))
    write(layout_1, T[2], completed=True)
    assert times(incremental_read(table, BY_REQUEST)) == [T[2]]


def test_after_an_upgrade_what_was_archived_is_placed_anew(tmp_path):
    """A write that was requested early and read may have completed after others that are unread."""
    snapshot = HudiTable(str(unpack(TABLES / "1.2.0" / "history.zip", tmp_path))).snapshot()
    newest = snapshot.timeline.completed_writes()[-1]
    archived = {one.time for one in snapshot.history() if one.is_write}
    seen = {order: Checkpoint(order, read=(order.commit_position(newest),)) for order in Order}
    found = {order: {one.time for one in completed_writes(snapshot, seen[order])} for order in Order}
    assert archived <= found[Order.REQUESTED]
    assert not archived & found[Order.COMPLETED]
