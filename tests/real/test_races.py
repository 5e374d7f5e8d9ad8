"""A slice of the races: writers kept apart by leases on real Hudi, beside controls without leases."""

from __future__ import annotations

import pytest

from tests.modules import run_module

pytestmark = [pytest.mark.real, pytest.mark.nightly]


def test_writers_under_leases_do_not_conflict():
    done = run_module("races", "--runs", 2, "--controls", 2, "--slice")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
