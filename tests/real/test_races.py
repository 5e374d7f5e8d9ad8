"""Slices of the races: writers kept apart by leases on real Hudi, beside controls without."""

from __future__ import annotations

import pytest

from tests.races.places import PLACES
from tests.support.modules import run_module

pytestmark = [pytest.mark.real, pytest.mark.nightly]


def test_writers_under_leases_do_not_conflict():
    done = run_module("races", "--runs", 2, "--controls", 2, "--slice")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


@pytest.mark.parametrize("place", PLACES)
def test_a_merge_under_a_lease_loses_no_update_wherever_its_driver_runs(place):
    done = run_module("races.places", "--place", place, "--runs", 2, "--controls", 1)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
