from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_occ_provider.attempts.record import AttemptRecord, Waiting
from airflow_occ_provider.attempts.waits import Fence, Settled, Wait, WriteStates, judge
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.submitters.processes import DriverProcess
from tests.support.local_drivers import handle_of

RULE = HeartbeatRule(1000, 5)
NOW = 100_000
OWN, OTHER = "20261121092507982", "20261121092507999"
LOST = AttemptRecord(1, 14, "i", "/t", 90_000, handle_of(DriverProcess(42, 0, "far", "b", "n")))
ENDED = replace(LOST, end="exit code 137", ended_ms=NOW - 2000)


def look(pending=(), ages=(), over=()):
    """The table, with heartbeats of so many milliseconds of age."""
    ticks = {time: NOW - age for time, age in zip(pending, ages, strict=False)}
    return WriteStates(frozenset(pending), frozenset(over), ticks, NOW, RULE)


def test_an_ended_driver_leaves_its_pending_instants_as_ghosts():
    attempt = replace(ENDED, instants=(OWN, "1"), log_read=True)
    assert judge(attempt, look([OWN, OTHER], ages=[0, 0]), None) == Settled((OWN,))


def test_where_its_log_was_not_read_a_beating_instant_may_be_its_own():
    step = judge(ENDED, look([OTHER], ages=[3000]), None)
    assert isinstance(step, Wait)
    assert step.instants == (OTHER,)
    assert "log of try 1" in step.reason


def test_an_instant_with_a_heartbeat_after_the_end_belongs_to_another_driver():
    assert judge(ENDED, look([OTHER], ages=[100]), None) == Settled()


@pytest.mark.parametrize("ages", [[6000], []])
def test_one_that_does_not_beat_needs_no_wait(ages):
    assert judge(ENDED, look([OTHER], ages=ages), None) == Settled()


def test_a_driver_without_an_observed_end_is_waited_for_while_its_heartbeat_lives():
    step = judge(replace(LOST, instants=(OWN,)), look([OWN, OTHER], ages=[0, 0]), None)
    assert isinstance(step, Wait)
    assert (step.instants, step.ended_ms) == ((OWN,), 0)
    assert "process 42 on far" in step.reason


@pytest.mark.parametrize("ages", [[5001], []])
def test_and_fenced_when_it_has_stopped(ages):
    assert judge(replace(LOST, instants=(OWN,)), look([OWN], ages=ages), None) == Fence((OWN,))


def test_once_its_instant_is_gone_it_is_settled():
    seen = look([OTHER], ages=[0], over=[OWN])
    assert judge(replace(LOST, instants=(OWN,)), seen, None) == Settled()


def test_an_instant_of_another_table_shows_nothing_about_this_one():
    step = judge(replace(LOST, instants=("1",)), look([OTHER], ages=[0]), None)
    assert isinstance(step, Wait)
    assert step.instants == (OTHER,)


def test_any_live_heartbeat_may_belong_to_a_driver_without_a_recorded_instant():
    step = judge(LOST, look([OTHER], ages=[0]), None)
    assert isinstance(step, Wait)
    assert step.instants == (OTHER,)


def test_what_was_waited_for_is_fenced_when_it_has_stopped():
    waiting = Waiting("", NOW - 9000, (OTHER,))
    assert judge(LOST, look([OTHER], ages=[6000]), waiting) == Fence((OTHER,))


def test_a_silent_driver_is_given_one_tolerance_to_show_an_instant():
    step = judge(LOST, look(), None)
    assert isinstance(step, Wait)
    assert (step.instants, step.until_ms) == ((), NOW + 5000)
    assert isinstance(judge(LOST, look(), Waiting("", NOW - 4999)), Wait)
    shown = judge(LOST, look([OTHER], ages=[0]), Waiting("", NOW - 5000))
    assert isinstance(shown, Wait)
    assert shown.instants == (OTHER,)
    assert judge(LOST, look(), Waiting("", NOW - 5000)) == Settled()


def test_only_a_look_at_the_same_process_table_proves_anything():
    here = DriverProcess.of(1)
    assert here.is_here
    assert not replace(here, host="other").is_here
    assert not replace(here, boot="rebooted").is_here
    assert not replace(here, namespace="pid:[2]").is_here
    assert not replace(here, user=here.user + 1).is_here  # it may not see what that one has started
    assert not DriverProcess(1).is_here
