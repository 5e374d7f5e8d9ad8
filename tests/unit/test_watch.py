from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from airflow_occ_provider.errors import NotHudiTableError, StorageStalledError, TableUnreadableError
from airflow_occ_provider.hudi.writer.fate import ENDED, Awaited, Fate, Match, Writer
from airflow_occ_provider.hudi.writer.heartbeat import ClockDifference, HeartbeatRule
from airflow_occ_provider.storage import folder as folder_module
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.storage.watch import WriterWatch
from tests.golden.table_archive import unpack
from tests.unit.beating import BeatingTable, instant

TABLES = Path(__file__).parents[1] / "golden" / "tables" / "1.2.0"
INTERVAL_MS, MISSES = 1000, 3
TOLERANCE_MS = INTERVAL_MS * MISSES
START_MS = 1_700_000_000_000


class Clock:
    def __init__(self):
        self.ms = START_MS

    def __call__(self):
        return self.ms


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def table(tmp_path):
    return BeatingTable(tmp_path / "t")


@pytest.fixture
def watch(table, clock):
    return WriterWatch(HudiTable(str(table.path)), HeartbeatRule(INTERVAL_MS, MISSES), clock)


@pytest.fixture
def listed(monkeypatch):
    """How often each folder was listed."""
    counts, list_folder = Counter(), folder_module.list_folder

    def counted(file_system, path):
        counts[path.rpartition("/")[2]] += 1
        return list_folder(file_system, path)

    monkeypatch.setattr(folder_module, "list_folder", counted)
    return counts


def test_a_writer_is_alive_then_late_then_dead(table, watch, clock):
    time = table.begin(1, clock.ms)
    fates = []
    for age_ms in (0, 1500, 1501, 3000, 3001):
        clock.ms = START_MS + age_ms
        fates.append(watch.observe().pending[time].fate)
    assert fates == [Fate.ALIVE, Fate.ALIVE, Fate.LATE, Fate.LATE, Fate.DEAD]
    table.beat(time, clock.ms)
    assert watch.observe().pending[time].fate is Fate.ALIVE  # a late tick recovers


def test_a_look_costs_one_listing_while_the_same_writers_beat(table, watch, clock, listed):
    times = [table.begin(number, clock.ms) for number in range(20)]
    watch.observe()
    listed.clear()
    looks = 40
    for _ in range(looks):
        clock.ms += INTERVAL_MS // 4
        for time in times:
            table.beat(time, clock.ms)
        sight = watch.observe()
        assert set(sight.fates.values()) == {Fate.ALIVE}
    assert sum(listed.values()) == looks
    assert listed["timeline"] == 3  # once in the tolerance, for writers that do not beat


def test_a_writer_that_completes_is_committed_at_the_next_observation(table, watch, clock):
    time = table.begin(1, clock.ms)
    assert watch.observe().writer(time).fate is Fate.ALIVE
    table.commit(time)
    table.stop_beating(time)
    sight = watch.observe()
    assert sight.pending == {}
    assert sight.writer(time).fate is Fate.COMMITTED


def test_a_writer_killed_after_its_commit_is_committed_and_never_dead(table, watch, clock):
    time = table.begin(1, clock.ms)
    watch.observe()
    table.commit(time)
    for _ in range(20):
        clock.ms += INTERVAL_MS // 2
        assert watch.observe().writer(time).fate is not Fate.DEAD
    assert watch.observe().writer(time).fate is Fate.COMMITTED


def test_a_writer_killed_after_its_commit_is_not_dead_in_an_older_listing(table, watch, clock):
    time = table.begin(1, clock.ms)
    watch.observe()
    clock.ms += 10
    table.begin(2, clock.ms + TOLERANCE_MS)
    assert watch.observe().writer(time).fate is Fate.ALIVE  # the timeline was listed after its last tick
    table.commit(time)
    clock.ms = START_MS + TOLERANCE_MS + 1
    assert watch.observe().writer(time).fate is Fate.COMMITTED


def test_a_writer_that_begins_before_a_listing_of_the_timeline_alone_is_pending(table, watch, clock):
    watch.observe()
    watch.observe()
    clock.ms += TOLERANCE_MS
    time = table.begin(1, clock.ms)
    assert watch.observe().pending[time].fate is Fate.ALIVE


@pytest.mark.parametrize("ends", [False, True])
def test_after_an_observation_that_failed_half_way_no_writer_is_overlooked(
    table, watch, clock, monkeypatch, ends
):
    old = table.begin(1, clock.ms)
    watch.observe()
    watch.observe()
    new = table.begin(2, clock.ms)
    if ends:
        table.commit(old)
        table.stop_beating(old)

    def away(*_, **__):
        raise StorageStalledError("no answer", remedy="wait")

    with monkeypatch.context() as stalled:
        stalled.setattr(HudiTable, "snapshot", away)
        with pytest.raises(StorageStalledError):
            watch.observe()
    sight = watch.observe()
    assert sight.pending[new].fate is Fate.ALIVE
    assert sight.writer(old).fate is (Fate.COMMITTED if ends else Fate.ALIVE)


def test_a_writer_between_heartbeat_and_request_is_found(table, watch, clock):
    watch.observe()
    table.beat(instant(1), clock.ms)
    assert watch.observe().pending == {}
    table.request(instant(1))
    assert watch.observe().pending[instant(1)].fate is Fate.ALIVE


def test_a_writer_that_begins_between_the_two_listings_is_not_dead(table, watch, clock, monkeypatch):
    watch.observe()
    read = WriterWatch._read_heartbeats

    def begin_after(self):
        changed = read(self)
        table.begin(1, clock.ms)
        return changed

    monkeypatch.setattr(WriterWatch, "_read_heartbeats", begin_after)
    assert watch.observe().pending == {}
    monkeypatch.setattr(WriterWatch, "_read_heartbeats", read)
    assert watch.observe().pending[instant(1)].fate is Fate.ALIVE


def test_a_pending_write_without_a_heartbeat_is_dead_as_for_hudi(table, watch, clock):
    watch.observe()
    table.request(instant(1))
    clock.ms += TOLERANCE_MS
    seen = {watch.observe().fates.get(instant(1)) for _ in range(2)}
    assert Fate.DEAD in seen
    table.commit(instant(1))
    assert watch.observe().pending == {}


def test_what_is_not_in_the_timeline_is_gone(watch):
    assert watch.observe().writer(instant(1)) == Writer(instant(1), "", Fate.GONE)


def test_a_rolled_back_write_is_recognised_by_the_rollback(tmp_path):
    path = unpack(TABLES / "rollbacks.zip", tmp_path / "r")
    sight = WriterWatch(HudiTable(str(path))).observe()
    victims = {one for i, v in sight.snapshot.rollbacks() if i.completed for one in v}
    assert victims
    assert {sight.writer(one).fate for one in victims} == {Fate.ROLLED_BACK}


@pytest.mark.parametrize("name", ["clustering", "compaction"])
def test_table_services_are_no_writers(tmp_path, name):
    path = unpack(TABLES / f"{name}.zip", tmp_path / "r")
    sight = WriterWatch(HudiTable(str(path))).observe()
    services = {i.time for i in sight.snapshot.timeline if sight.snapshot.reader.planned(i) is not None}
    assert services
    assert not services & sight.pending.keys()


@pytest.mark.parametrize("rewritten_in_time", [False, True])
def test_an_upgrade_of_the_table_makes_no_living_writer_gone(tmp_path, clock, rewritten_in_time):
    table = BeatingTable(tmp_path / "t", layout=1)
    watch = WriterWatch(HudiTable(str(table.path)), HeartbeatRule(INTERVAL_MS, MISSES), clock)
    times = [table.begin(number, clock.ms) for number in range(5)]
    assert set(watch.observe().fates.values()) == {Fate.ALIVE}
    table.move_timeline()
    if not rewritten_in_time:
        clock.ms += TOLERANCE_MS
        with pytest.raises(TableUnreadableError, match="is being upgraded"):
            watch.observe()
    table.write_properties(layout=2)
    for _ in range(3):
        clock.ms += TOLERANCE_MS
        for time in times:
            table.beat(time, clock.ms)
        sight = watch.observe()
        assert {time: sight.writer(time).fate for time in times} == dict.fromkeys(times, Fate.ALIVE)
    table.commit(times[0])
    table.stop_beating(times[0])
    assert watch.observe().writer(times[0]).fate is Fate.COMMITTED


def test_without_a_table_there_is_nothing_to_watch(tmp_path):
    with pytest.raises(NotHudiTableError):
        WriterWatch(HudiTable(str(tmp_path))).observe()


@pytest.mark.parametrize("ahead_ms", [-90_000, 0, 90_000])
def test_the_clocks_are_compared_by_ticks(table, watch, clock, ahead_ms):
    time = table.begin(1, clock.ms + ahead_ms)
    assert watch.observe().clock is None
    for _ in range(5):
        clock.ms += 200
        table.beat(time, clock.ms + ahead_ms)
        clock.ms += 50
        found = watch.observe().clock
        assert found.least_ms <= ahead_ms <= found.most_ms
    assert found.most_ms - found.least_ms == 250
    assert found.minimum_ms == max(0, abs(ahead_ms) - (200 if ahead_ms < 0 else 50))


def test_a_clock_that_was_set_begins_anew():
    before = ClockDifference(-10, 20)
    assert before.narrowed(ClockDifference(0, 30)) == ClockDifference(0, 20)
    assert before.narrowed(ClockDifference(500, 600)) == ClockDifference(500, 600)
    assert str(ClockDifference(-90_000, 250)) == "-90.0 to +0.2 s"


def writers(*fates):
    return [Writer(instant(n), "commit", Fate(fate)) for n, fate in enumerate(fates)]


@pytest.mark.parametrize(
    ("match", "fates", "reached"),
    [
        ("all", ["alive", "dead"], None),
        ("all", ["late"], None),
        ("all", ["dead", "gone", "committed", "rolled_back"], 4),
        ("all", [], 0),
        ("any", [], None),
        ("any", ["alive", "late"], None),
        ("any", ["alive", "dead", "dead"], 2),
    ],
)
def test_what_is_awaited(match, fates, reached):
    found = Awaited(ENDED, Match(match)).reached(writers(*fates))
    assert (None if found is None else len(found)) == reached
