"""Where the time axis puts instants, and what it leaves out."""

from __future__ import annotations

import random

import pytest

from airflow_occ_provider.attempts.identity import Signature
from airflow_occ_provider.hudi.writer.fate import Fate
from airflow_occ_provider.reading.table_state import Bar, Edge
from airflow_occ_provider.spelling import spell_span
from airflow_occ_provider.ui.drawing import LANE, LEFT, RIGHT
from airflow_occ_provider.ui.links import ANOTHER_DAG, Viewer
from airflow_occ_provider.ui.time_axis import MOST_BARS, MOST_LANES, time_axis

NOW = 1_795_268_400_000  # 2026-11-21 13:40 UTC
MINUTE = 60_000
HALF = (LEFT + RIGHT) / 2


def ago(minutes):
    return NOW - minutes * MINUTE


def bar(instant, begun, ended=None, fate=None, *, task="", seen=None, service=False):
    writer = Signature("identity", "nightly", f"run{instant}", task) if task else None
    fate = fate or (Fate.ALIVE if ended is None else Fate.COMMITTED)
    end_ms, seen_ms = (None if one is None else ago(one) for one in (ended, seen))
    return Bar(instant, "UPSERT", fate, ago(begun), end_ms, seen_ms, writer, service)


def axis(*bars, edges=(), minutes=60, viewer=None):
    return time_axis(bars, edges, NOW, minutes, viewer or Viewer())


def marks(drawn):
    return {mark.instant: mark for row in drawn.rows for mark in row.marks}


def test_a_bar_reaches_from_requested_to_completed():
    (mark,) = marks(axis(bar("1", 30, 15))).values()
    assert (mark.begin, mark.end) == (HALF, HALF + (RIGHT - LEFT) / 4)
    assert mark.path.endswith("Z")
    assert mark.cross is None


def test_a_pending_bar_is_open_to_now():
    (mark,) = marks(axis(bar("1", 30))).values()
    assert (mark.begin, mark.end, mark.is_open) == (HALF, RIGHT, True)
    assert mark.path == f"M{RIGHT}.0 {mark.y}H{HALF}V{mark.y + 12}H{RIGHT}.0"


def test_what_began_before_the_range_is_cut_and_what_ended_before_it_is_not_there():
    drawn = axis(bar("1", 90, 30), bar("2", 90, 61), bar("3", 500))
    assert {name: (one.begin, one.end) for name, one in marks(drawn).items()} == {
        "1": (LEFT, HALF),
        "3": (LEFT, RIGHT),
    }
    assert drawn.left_out == 0


def test_a_bar_in_the_future_of_our_clock_stays_on_the_axis():
    (mark,) = marks(axis(bar("1", -5))).values()
    assert (mark.begin, mark.end) == (RIGHT, RIGHT + 3)


def test_a_dead_write_has_its_cross_at_its_last_heartbeat():
    found = marks(axis(bar("1", 60, fate=Fate.DEAD, seen=30), bar("2", 45, fate=Fate.DEAD)))
    assert found["1"].cross == HALF
    assert found["2"].cross == found["2"].begin
    assert found["1"].is_open


def test_a_rolled_back_write_has_its_cross_at_its_end():
    (mark,) = marks(axis(bar("1", 60, 30, Fate.ROLLED_BACK))).values()
    assert (mark.cross, mark.is_open) == (HALF, False)


def test_rows_are_tasks_by_name_then_the_rest():
    drawn = axis(
        bar("1", 50, 40, service=True),
        bar("2", 50, 40),
        bar("3", 50, 40, Fate.ROLLED_BACK, task="load"),
        bar("4", 30, 20, task="load"),
        bar("5", 30, task="fix"),
        edges=[Edge("9", "3", "rollback")],
    )
    assert [(row.label, [mark.instant for mark in row.marks]) for row in drawn.rows] == [
        ("nightly / fix", ["5"]),
        ("nightly / load", ["3", "4"]),
        ("No signature", ["2"]),
        ("Table services", ["1"]),
        ("Rollbacks", []),
    ]
    heights = [(row.y, row.height) for row in drawn.rows]
    assert heights == [(28 + n * LANE, LANE) for n in range(5)]
    assert drawn.bottom == 28 + 5 * LANE


def test_bars_that_overlap_are_in_lanes_of_their_own():
    drawn = axis(bar("1", 50, 30), bar("2", 40, 20), bar("3", 25, 10))
    (row,) = drawn.rows
    assert row.height == 2 * LANE
    assert {one.instant: one.y - row.y for one in row.marks} == {"1": 5, "2": 5 + LANE, "3": 5}


def test_a_row_sums_what_its_writes_wasted():
    drawn = axis(
        bar("1", 50, 45, Fate.ROLLED_BACK, task="load"),
        bar("2", 30, fate=Fate.DEAD, seen=28, task="load"),
        bar("3", 20, 10, task="fix"),
    )
    assert {row.label: row.wasted for row in drawn.rows} == {
        "nightly / load": "7 min",
        "nightly / fix": "",
    }


def test_a_row_sums_no_waste_from_before_the_range():
    drawn = axis(
        bar("1", 600, 45, Fate.ROLLED_BACK, task="load"),
        bar("2", 600, fate=Fate.DEAD, seen=58, task="load"),
        bar("3", 600, fate=Fate.DEAD, seen=500, task="fix"),
    )
    assert {row.label: row.wasted for row in drawn.rows} == {
        "nightly / load": "17 min",
        "nightly / fix": "",
    }


def test_a_row_sums_also_what_is_left_out():
    bars = [bar(f"{n:04}", 40, 30 + n / 1000, Fate.ROLLED_BACK) for n in range(MOST_LANES + 1)]
    (row,) = axis(*bars).rows
    assert row.wasted == spell_span(sum(one.lost_ms for one in bars))
    assert len(row.marks) == MOST_LANES


def test_runs_of_a_dag_that_the_viewer_may_not_read_have_no_name():
    drawn = axis(bar("1", 50, 40, task="load"), viewer=Viewer(dags=frozenset({"other"})))
    (row,) = drawn.rows
    (mark,) = row.marks
    assert (row.label, row.title, mark.href) == (ANOTHER_DAG, ANOTHER_DAG, "")
    assert "nightly" not in mark.title


def test_a_bar_tells_its_times_and_its_task_run():
    (mark,) = marks(axis(bar("7", 30, 15, task="load"))).values()
    assert mark.title == (
        "7 UPSERT: completed; requested 2026-11-21 13:10:00 UTC; "
        "ended 2026-11-21 13:25:00 UTC after 15 min; nightly / run7 / load"
    )
    assert mark.href == "../dags/nightly/runs/run7/tasks/load"


def test_an_arrow_points_from_the_rival_to_the_write_that_loses():
    both = [Edge("1", "2", "conflict"), Edge("2", "1", "possible conflict")]
    drawn = axis(bar("1", 40, task="a"), bar("2", 30, task="b"), edges=both)
    up, down = drawn.arrows
    found = marks(drawn)
    assert (up.kind, up.title) == ("possible", "1 may lose to 2")
    assert (down.kind, down.title) == ("conflict", "2 will lose to 1")
    assert down.path == f"M{HALF + 6} {found['1'].y + 12}V{found['2'].y}m-4 -5l4 5l4 -5"
    assert up.path == f"M{HALF + 16} {found['2'].y}V{found['1'].y + 12}m-4 5l4 -5l4 5"


def test_a_rollback_points_at_the_end_of_what_it_took_back():
    drawn = axis(bar("1", 40, 30, Fate.ROLLED_BACK), edges=[Edge("9", "1", "rollback")])
    (arrow,) = drawn.arrows
    assert arrow.title == "9 rolled back 1"
    assert arrow.path.startswith(f"M{HALF} ")
    assert arrow.diamond.startswith(f"M{HALF} ")


def test_an_arrow_whose_ends_are_not_shown_is_left_out():
    edges = [Edge("8", "1", "conflict"), Edge("1", "8", "conflict"), Edge("9", "8", "rollback")]
    assert axis(bar("1", 40), edges=edges).arrows == ()


def test_of_too_many_instants_the_newest_are_shown_and_the_rest_counted():
    bars = [bar(f"{n:04}", (n + 2) / 10, (n + 1.5) / 10) for n in range(MOST_BARS + 7)]
    drawn = axis(*bars)
    assert sorted(marks(drawn)) == [f"{n:04}" for n in range(MOST_BARS)]
    assert drawn.left_out == 7


def test_of_too_many_lanes_those_of_the_newest_instants_are_shown():
    bars = [bar(str(n), n / 2 + 0.4, n / 2, task=f"task{n:03}") for n in range(MOST_LANES + 5)]
    drawn = axis(*bars)
    assert [row.label for row in drawn.rows] == [f"nightly / task{n:03}" for n in range(MOST_LANES)]
    assert drawn.left_out == 5


def test_one_row_has_no_more_lanes_than_all_may_have():
    drawn = axis(*(bar(f"{n:03}", 30) for n in range(MOST_LANES + 5)), bar("9", 30, 20, task="load"))
    assert sum(row.height for row in drawn.rows) == MOST_LANES * LANE
    assert drawn.left_out == 6


@pytest.mark.parametrize(
    ("minutes", "texts"),
    [
        (15, "13:26 13:28 13:30 13:32 13:34 13:36 13:38 13:40"),
        (60, "12:40 12:50 13:00 13:10 13:20 13:30 13:40"),
        (360, "08:00 09:00 10:00 11:00 12:00 13:00"),
        (1440, "15:00 18:00 21:00 00:00 03:00 06:00 09:00 12:00"),
    ],
)
def test_ticks_are_at_round_times(minutes, texts):
    ticks = axis(minutes=minutes).ticks
    assert " ".join(text for _, text in ticks) == texts
    assert all(LEFT <= x <= RIGHT for x, _ in ticks)


def test_the_order_of_the_bars_does_not_matter():
    bars = [bar(str(n), 5 + n % 7, n % 5, task=f"t{n % 3}") for n in range(40)]
    edges = [Edge("1", "2", "conflict"), Edge("3", "4", "conflict"), Edge("5", "2", "conflict")]
    drawn = axis(*bars, edges=edges)
    shuffled = random.Random(7)
    shuffled.shuffle(bars)
    shuffled.shuffle(edges)
    assert axis(*bars, edges=edges) == drawn
