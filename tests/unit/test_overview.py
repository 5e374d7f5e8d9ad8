"""What an overview shows of tables that real Hudi made."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.leases.rules import Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.reading.overview import bars, moment_ms, queue_lines, read_state, zone_shift_ms
from airflow_occ_provider.reading.table_state import Edge
from airflow_occ_provider.storage.table import HudiTable
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack

TABLES = Path(__file__).parents[1] / "golden" / "tables"


@pytest.fixture(params=HUDI_RELEASES)
def state_of(request, tmp_path):
    def state_of(name, since_ms=0):
        table = HudiTable(str(unpack(TABLES / request.param / f"{name}.zip", tmp_path)))
        return read_state(table, None, since_ms)[0]

    return state_of


def test_a_rolled_back_write_ends_with_its_rollback_and_was_in_vain(state_of):
    state = state_of("rolled_back_alive")
    (rolled_back,) = (bar for bar in state.bars if bar.fate is Fate.ROLLED_BACK)
    assert 0 < rolled_back.lost_ms == state.lost_ms
    assert [edge.target for edge in state.edges] == [rolled_back.instant]
    assert state.writers == ()


@pytest.mark.parametrize("release", HUDI_RELEASES)
@pytest.mark.parametrize("action", ["rollback", "restore"])
def test_a_write_that_is_named_again_ends_with_its_first_rollback(release, action, tmp_path):
    table = unpack(TABLES / release / "rolled_back_alive.zip", tmp_path)
    before = read_state(HudiTable(str(table)), None, 0)[0]
    for file in table.glob(".hoodie/**/*.rollback*"):
        modified = file.stat().st_mtime_ns + 3_600 * 10**9
        again = file.with_name(file.name.replace("2026", "2027", 1).replace("rollback", action))
        assert again != file
        again.write_bytes(file.read_bytes())
        os.utime(again, ns=(modified, modified))
    after = read_state(HudiTable(str(table)), None, 0)[0]
    assert len(after.edges) == 2 * len(before.edges) == 2
    assert after.bars == before.bars
    (ended_ms,) = (bar.ended_ms for bar in before.bars if bar.fate is Fate.ROLLED_BACK)
    later = read_state(HudiTable(str(table)), None, ended_ms + 1)[0]
    assert Fate.ROLLED_BACK not in {bar.fate for bar in later.bars}


def test_what_a_rolled_back_write_lost_counts_from_the_first_moment_on(state_of):
    (lost,) = (bar for bar in state_of("rolled_back_alive").bars if bar.lost_ms)
    state = state_of("rolled_back_alive", lost.begun_ms + 100)
    assert lost in state.bars
    assert state.lost_ms == lost.lost_ms - 100


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_what_a_dead_writer_lost_counts_from_the_first_moment_to_its_last_tick(release, tmp_path):
    table = unpack(TABLES / release / "live_direct.zip", tmp_path)
    first, *_ = (
        bar for bar in read_state(HudiTable(str(table)), None, 0)[0].bars if bar.fate is Fate.DEAD
    )
    shutil.rmtree(table / ".hoodie" / ".heartbeat")
    heartbeat = table / ".hoodie" / ".heartbeat" / first.instant
    heartbeat.parent.mkdir()
    heartbeat.touch()
    os.utime(heartbeat, ns=((first.begun_ms + 600_000) * 10**6,) * 2)
    since_ms = (first.begun_ms + 60_000, first.begun_ms + 600_001)
    states = [read_state(HudiTable(str(table)), None, since)[0] for since in since_ms]
    assert [one.lost_ms for one in states] == [540_000, 0]
    assert {one.dead[0].instant.time for one in states} == {first.instant}


def test_dead_writers_are_pending_and_count_until_their_last_tick(state_of):
    state = state_of("live_direct")
    dead = [bar for bar in state.bars if bar.fate is Fate.DEAD]
    assert [bar.instant for bar in dead] == [one.instant.time for one in state.dead]
    assert len(dead) == len(state.writers)
    assert all(bar.ended_ms is None for bar in dead)


def test_rivals_point_at_each_other_and_the_verdict_is_a_sentence(state_of):
    state = state_of("early_conflict")
    first, second = (one.instant.time for one in state.writers)
    conflicts = {edge for edge in state.edges if edge.kind == "possible conflict"}
    assert conflicts == {
        Edge(first, second, "possible conflict"),
        Edge(second, first, "possible conflict"),
    }
    assert state.writers[0].sentence.startswith(f"May lose to {second}: ")
    assert {one.partitions for one in state.writers} == {("p1",)}


def test_table_services_are_told_from_writes(state_of):
    state = state_of("compaction")
    assert state.writers == ()
    services = [one.instant.time for one in state.services]
    assert services == [bar.instant for bar in state.bars if bar.is_service and not bar.ended_ms]
    assert all(one.age_ms > 0 for one in state.services)
    assert state.lost_ms == 0


def test_what_ended_before_the_first_moment_is_left_out(state_of):
    everything = state_of("operations").bars
    ends = sorted(bar.ended_ms for bar in everything if bar.ended_ms)
    shown = state_of("operations", since_ms=ends[-2]).bars
    assert [bar.ended_ms for bar in shown if bar.ended_ms] == ends[-2:]


def test_a_requested_time_is_a_moment_in_the_zone_of_its_writer():
    assert moment_ms("20261121134138704") == 1795268498704
    assert moment_ms("20261121144138704", 3_600_000) == 1795268498704
    assert moment_ms("20261121134138") == 1795268498000


def test_the_zone_follows_from_what_the_storage_says(tmp_path):
    table = unpack(TABLES / "1.2.0" / "operations.zip", tmp_path)
    snapshot = HudiTable(str(table)).snapshot()
    assert zone_shift_ms(snapshot) == 0


@pytest.mark.parametrize("time", ["00000000000001", "00000000000000010", "001"])
def test_a_requested_time_that_is_no_date_is_no_moment(time):
    assert moment_ms(time) is None


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_instants_without_a_date_count_for_no_zone_and_begin_with_their_file(release, tmp_path):
    table = unpack(TABLES / release / "operations.zip", tmp_path)
    snapshot = HudiTable(str(table / ".hoodie" / "metadata")).snapshot()
    undated = {one.time: one for one in snapshot.timeline if moment_ms(one.time) is None}
    assert undated
    assert zone_shift_ms(snapshot) == 0
    shown = {bar.instant: bar.begun_ms for bar in bars(snapshot, (), 0)}
    assert {one: shown[one] for one in undated} == {
        time: snapshot.times(one).requested_ms for time, one in undated.items()
    }


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_a_rolled_back_instant_without_a_date_is_left_out(release, tmp_path):
    table = unpack(TABLES / release / "rolled_back_alive.zip", tmp_path)
    for file in table.glob(".hoodie/**/*.rollback"):
        content, modified = file.read_bytes(), file.stat().st_mtime_ns
        ((_, times),) = HudiTable(str(table)).snapshot().rollbacks()
        for time in times:
            content = content.replace(time.encode(), b"00000000000000001")
        file.write_bytes(content)
        os.utime(file, ns=(modified, modified))
    ((_, times),) = HudiTable(str(table)).snapshot().rollbacks()
    assert times == {"00000000000000001"}
    fates = [bar.fate for bar in read_state(HudiTable(str(table)), None, 0)[0].bars]
    assert fates
    assert Fate.ROLLED_BACK not in fates


def queued(number, table, partitions=None):
    owner = Owner(("dag", "run", f"task{number}", "-1"))
    request = Request(f"id{number}", owner, (Scope.of(table, partitions),), 1000)
    return QueuedRequest(request, f"name{number}", (number,))


def test_the_queue_of_a_table_says_who_waits_for_whom():
    queue = [queued(1, "/other"), queued(3, "/t", ["a"]), queued(2, "/t"), queued(4, "/t", ["b"])]
    lines = list(queue_lines(queue, "/t"))
    assert [(line.place, line.holds) for line in lines] == [(1, True), (2, False), (3, False)]
    blocked = [[one.queued.name for one in line.waits_for] for line in lines]
    assert blocked == [[], ["name2"], ["name2"]]
