"""A slice of the races: what leases keep apart on real Hudi, beside controls without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kinds", [("keys", "increments"), ("scopes", "delete")])
def test_what_leases_keep_apart_does_not_meet(kinds):
    done = subprocess.run(
        [sys.executable, "-m", "tests.races", "--runs", "3", "--controls", "3", "--kinds", *kinds],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
