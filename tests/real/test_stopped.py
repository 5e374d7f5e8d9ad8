"""Real Hudi: a driver whose attempt is stopped commits only while its lease lasts."""

from __future__ import annotations

import random

import pytest

from tests.stopped.course import Course, Trial
from tests.support.stores import Lake

pytestmark = [pytest.mark.real, pytest.mark.nightly]
TTL_S = 6.0


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    lake = Lake(tmp_path_factory.mktemp("stopped"))
    course = Course(lake.folder / "lane", lake, TTL_S, random.Random(7))
    course.warm_up()
    yield course
    course.end()


def test_a_driver_whose_attempt_is_stopped_begins_no_commit_after_the_lease(course):
    leased = course.run(Trial(1, has_life=True, stops_driver=False, pause_s=2 * TTL_S))
    assert leased.late_s is None
    assert "airflow_occ_provider refused" in leased.error
    control = course.run(Trial(2, has_life=False, stops_driver=False, pause_s=2 * TTL_S))
    assert control.is_late


def test_a_driver_commits_late_only_if_its_commits_depend_on_no_lease(course):
    results = [course.run(Trial(number, has_life=True, stops_driver=True)) for number in range(3, 7)]
    assert not any(result.is_late for result in results)
