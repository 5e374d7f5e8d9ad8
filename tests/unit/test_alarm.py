from __future__ import annotations

import logging

import pytest

from airflow_occ_provider.attempts.guards.heartbeat_alarm import Alarm, HeartbeatState
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule

RULE = HeartbeatRule(interval_ms=60_000, tolerable_misses=2)
T, T2 = "20261121092507982", "20261121092600000"
ROLLBACK = "20261121092601000"
EPOCH_MS = 1_795_000_000_000


class Course:
    """Looks at one write, at seconds of a clock that the storage's heartbeats are ahead of."""

    def __init__(self, ahead_s=0):
        self.alarm = Alarm(RULE)
        self.ahead_s = ahead_s
        self.lines = []

    def at(self, now_s, *, tick_s=None, instant=T, **state):
        last_ms = None if tick_s is None else EPOCH_MS + (tick_s + self.ahead_s) * 1000
        return self.take(now_s, HeartbeatState(instant, last_ms, **state))

    def take(self, now_s, state):
        lines = self.alarm.take(state, EPOCH_MS + now_s * 1000, 7_000 + now_s)
        self.lines += lines
        return [line.text for line in lines]


def test_a_heartbeat_that_ticks_needs_no_line():
    course = Course()
    for second in range(0, 600, 15):
        assert course.at(second, tick_s=second // 60 * 60) == []
    assert course.alarm.margin_ms == 75_000
    assert course.alarm.stop is None


def test_late_dead_and_back_are_logged_once_each_and_stop_nothing():
    course = Course()
    for second in range(0, 300, 15):
        course.at(second, tick_s=0)
    course.at(300, tick_s=200)  # a tick that is late itself
    for second in range(301, 390, 15):
        course.at(second, tick_s=300)
    late, dead, back = course.lines
    assert "is late: its last tick was 105 s ago; from 120 s on" in late.text
    assert "as dead: its heartbeat's last tick was 135 s ago, and 120 s are tolerated" in dead.text
    for word in (late, dead):
        assert word.level == logging.WARNING
        assert (
            "A late tick recovers it. If it stays so, Hudi refuses the commit, and the lazy" in word.text
        )
    assert (back.level, back.text) == (logging.INFO, f"The heartbeat of instant {T} ticks again.")
    assert course.alarm.stop is None


def test_a_repeated_state_is_logged_again():
    course = Course()
    course.at(100, tick_s=0)
    course.at(101, tick_s=101)
    assert len(course.at(200, tick_s=101)) == 1


def test_past_hudis_own_check_the_commit_is_not_refused_any_more():
    (word,) = Course().at(100, tick_s=0, is_committing=True)
    assert "Hudi refuses" not in word


def test_a_missing_heartbeat_is_logged_when_a_live_writer_would_have_renewed_it():
    course = Course()
    course.at(0, tick_s=0)
    assert course.at(15) == []
    assert course.at(75) == []
    (gone,) = course.at(76)
    assert "is gone" in gone
    assert course.at(500) == []
    assert course.at(515, tick_s=514) == [f"The heartbeat of instant {T} ticks again."]
    assert course.alarm.stop is None


def test_a_write_without_a_heartbeat_never_had_one():
    course = Course()
    assert [course.at(second) for second in range(0, 600, 15)] == [[]] * 40
    assert course.alarm.margin_ms is None


@pytest.mark.parametrize("ahead_s", [0, 3600, -3600])
def test_a_rollback_of_a_write_that_ticks_ends_it_whatever_the_storages_clock_says(ahead_s):
    course = Course(ahead_s)
    course.at(0, tick_s=0)
    (*_, word) = course.at(15, tick_s=0, rollback=ROLLBACK)
    assert course.alarm.stop.outcome is Outcome.ROLLED_BACK
    assert course.alarm.stop.line == f"rollback {ROLLBACK} takes back {T}, which the driver was writing"
    assert word == f"{course.alarm.stop.line}. The driver is ended."


def test_a_rollback_of_a_write_that_ticks_no_more_ends_nothing():
    course = Course()
    course.at(0, tick_s=0)
    course.at(121, tick_s=0, rollback=ROLLBACK)
    assert course.alarm.stop is None
    course.at(130, rollback=ROLLBACK)
    assert course.alarm.stop is None


def test_a_rollback_is_enough_once_the_write_ticks_again():
    course = Course()
    course.at(0, tick_s=0)
    course.at(200, rollback=ROLLBACK)
    assert course.alarm.stop is None
    course.at(215, tick_s=214, rollback=ROLLBACK)
    assert course.alarm.stop.outcome is Outcome.ROLLED_BACK


@pytest.mark.parametrize("ahead_s", [0, 3600, -3600])
def test_a_dead_timer_ends_the_driver_once_hudi_is_sure_to_refuse(ahead_s):
    course = Course(ahead_s)
    course.at(0, tick_s=0)
    (word,) = course.at(70, tick_s=0, timer_died=True)
    assert "there will be no further tick" in word
    assert course.at(120, tick_s=0, timer_died=True) == []
    assert course.alarm.stop is None
    (word,) = course.at(121, tick_s=0, timer_died=True)
    assert word.endswith("The driver is ended.")
    assert course.alarm.stop.outcome is Outcome.HEARTBEAT_EXPIRED
    assert "Hudi refuses its commit" in course.alarm.stop.line


def test_a_dead_timer_of_a_write_whose_heartbeat_is_gone_too():
    course = Course()
    course.at(0, tick_s=0)
    course.at(10, timer_died=True)
    course.at(131, timer_died=True)
    assert course.alarm.stop.outcome is Outcome.HEARTBEAT_EXPIRED


def test_a_timer_that_died_beside_a_renewed_heartbeat_is_another_tables():
    course = Course()
    for second in range(0, 600, 15):
        course.at(second, tick_s=second // 60 * 60, timer_died=True)
    assert course.alarm.stop is None
    assert len(course.lines) == 1


def test_a_driver_that_came_to_its_commit_is_past_the_check():
    course = Course()
    course.at(0, tick_s=0)
    for second in range(15, 600, 15):
        course.at(second, tick_s=0, timer_died=True, is_committing=True)
    assert (course.alarm.stop, course.lines) == (None, [])


def test_an_expired_heartbeat_alone_never_ends_a_driver():
    course = Course()
    for second in range(0, 100_000, 15):
        course.at(second, tick_s=0 if second < 50_000 else None)
    assert course.alarm.stop is None


def test_each_write_of_a_driver_begins_anew():
    course = Course()
    course.at(0, tick_s=0)
    course.at(100, tick_s=0)
    assert course.at(110, instant=T2, tick_s=110) == []
    assert course.take(120, None) == []
    assert course.alarm.margin_ms is None
    assert len(course.at(300, instant=T2, tick_s=110)) == 1
    assert len(course.lines) == 2
