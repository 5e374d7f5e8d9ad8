"""A slice of the fault runs: whatever is killed or frozen when, one commit and every row once."""

from __future__ import annotations

import pytest

from tests.modules import run_module

pytestmark = pytest.mark.system
RUNS = 2


def test_one_task_run_makes_one_commit():
    done = run_module("faults", "--runs", RUNS, "--seed", 1)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert f"{RUNS} runs, seed 1: 0 wrong" in done.stdout
