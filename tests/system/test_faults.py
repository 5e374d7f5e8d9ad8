"""A slice of the fault runs: whatever is killed or frozen when, one commit and every row once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system
RUNS = 6


@pytest.mark.timeout(1500)
def test_one_task_run_makes_one_commit():
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--runs", str(RUNS), "--seed", "1"],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=1450,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert f"{RUNS} runs, seed 1: 0 wrong" in done.stdout
