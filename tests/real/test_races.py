"""A slice of the races: what leases keep apart on real Hudi, beside controls without them."""

from __future__ import annotations

import pytest

from tests.modules import run_module

pytestmark = pytest.mark.real


def test_what_leases_keep_apart_does_not_meet():
    done = run_module("races", "--runs", 2, "--controls", 2, "--slice")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
