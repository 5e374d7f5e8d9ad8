"""What is said of a table is the same in each time zone of the process that says it."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from airflow_occ_provider.attempts.commit import audit
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.conflict.verdict import Certainty
from airflow_occ_provider.hudi.incremental.checkpoint import Checkpoint, Order
from airflow_occ_provider.reading.described import describe_instant
from airflow_occ_provider.reading.new_commits import CommitFilter, event_of, new_commits, seen_up_to
from airflow_occ_provider.storage.conflicts import Setup, lost_conflict, possible_winners, verdicts
from airflow_occ_provider.storage.incremental import incremental_read
from airflow_occ_provider.storage.table import HudiTable
from tests.golden.table_archive import unpack
from tests.support.avro_metadata import RECORD, avro
from tests.support.table_properties import table_properties

ZONES = ("UTC", "Asia/Kolkata", "Pacific/Auckland")
TABLES = Path(__file__).parents[1] / "golden" / "tables"
OF_LAYOUT_1 = (
    *("0.15.0/live_direct", "0.15.0/rolled_back_alive", "0.15.0/history_merge_on_read"),
    *("0.15.0/archived_beyond_savepoint", "1.2.0/version_6", "1.2.0/version_6_history"),
)


@pytest.fixture
def in_each_zone(monkeypatch):
    """Return what a function says in each zone, of which all have to be equal."""

    def each(say):
        answers = []
        for zone in ZONES:
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            answers.append(say())
        return answers

    yield each
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("name", OF_LAYOUT_1)
def test_a_table_of_layout_1_is_read_the_same(name, tmp_path, in_each_zone):
    path = str(unpack(TABLES / f"{name}.zip", tmp_path))

    def say():
        table = HudiTable(path)
        snapshot = table.snapshot()
        assert snapshot.config.layout_version == 1
        found = {
            strategy: {
                own: sorted((one.rival.instant.time, one.certainty) for one in verdict.conflicts)
                for own, verdict in verdicts(table, snapshot, Setup(strategy)).items()
            }
            for strategy in Strategy
        }
        writes = snapshot.timeline.completed_writes()
        for start in (*(one.time for one in writes), "20261121000000000"):
            seen = seen_up_to(snapshot, start)
            commits = new_commits(snapshot, seen, CommitFilter()).commits
            found[start] = [event_of(one) for one in commits]
        described = [describe_instant(snapshot, one, {}, files=True) for one in snapshot.timeline]
        audits = [audit(table, snapshot, one, snapshot.reader.commit(one)) for one in writes]
        return found, described, audits, incremental_read(table).window.predicate

    first, *others = in_each_zone(say)
    assert all(one == first for one in others)


def test_a_watcher_that_begins_after_an_instant_gets_what_completed_later(tmp_path, in_each_zone):
    path = str(unpack(TABLES / "0.15.0" / "history.zip", tmp_path))
    writes = HudiTable(path).snapshot().timeline.completed_writes()

    def say():
        snapshot = HudiTable(path).snapshot()
        seen = seen_up_to(snapshot, writes[0].time)
        return len(new_commits(snapshot, seen, CommitFilter()).commits)

    assert in_each_zone(say) == [len(writes) - 1] * len(ZONES)


@pytest.mark.parametrize("driver_zone", ZONES)
@pytest.mark.parametrize(
    ("completed_at_s", "expected"),
    [(-3_300, None), (60, Certainty.CERTAIN)],  # before our request, and after our inflight file
)
def test_a_writer_that_prefers_writers_loses_to_later_ones_only(
    folder, driver_zone, completed_at_s, expected, in_each_zone
):
    (folder / "hoodie.properties").write_text(table_properties(version=6, layout=1))
    begun_s = round(time.time()) - 300

    def instant(at_s):
        return f"{datetime.fromtimestamp(at_s, ZoneInfo(driver_zone)):%Y%m%d%H%M%S}000"

    def write(name, at_s, content=b""):
        (folder / name).write_bytes(content)
        os.utime(folder / name, (at_s, at_s))

    own, rival = instant(begun_s), instant(begun_s - 3_600)
    upsert = avro({**RECORD, "operationType": "UPSERT"})
    write(f"{rival}.commit.requested", begun_s - 3_600)
    write(f"{rival}.inflight", begun_s - 3_590, upsert)
    write(f"{rival}.commit", begun_s + completed_at_s, upsert)
    write(f"{own}.commit.requested", begun_s + 2)
    write(f"{own}.inflight", begun_s + 20, upsert)

    def say():
        snapshot = HudiTable(str(folder.parent)).snapshot()
        ours = snapshot.timeline.find(own)
        rivals = possible_winners(snapshot, ours)
        found = lost_conflict(snapshot, ours, rivals, Setup(Strategy.PREFER_WRITER))
        return found.certainty if found else None

    assert in_each_zone(say) == [expected] * len(ZONES)


WITH_ARCHIVE = (
    *("0.15.0/archived_beyond_savepoint", "0.15.0/history", "0.15.0/history_merge_on_read"),
    *("1.0.2/version_6_archive", "1.2.0/version_6_history", "1.2.0/history", "1.2.0/upgraded"),
)


@pytest.mark.parametrize("name", WITH_ARCHIVE)
@pytest.mark.parametrize("hours", [-11, 0, 13])
def test_archived_commits_come_before_those_that_completed_later(name, hours, tmp_path):
    """In any zone of the writers; the times of the files are what a storage in UTC would show."""
    table = unpack(TABLES / f"{name}.zip", tmp_path)
    for path in table.glob("**/.hoodie/**/2*"):
        named = datetime.strptime(path.name[:17], "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
        moment = (named - timedelta(hours=hours)).timestamp()
        os.utime(path, (moment, moment))
    snapshot = HudiTable(str(table)).snapshot()
    before_all = Checkpoint(Order.of(snapshot.config), "0")
    commits = new_commits(snapshot, before_all, CommitFilter()).commits
    times = [commit.instant.time for commit in commits]
    assert {commit.instant.archived for commit in commits} == {True, False}
    assert times == sorted(times)
