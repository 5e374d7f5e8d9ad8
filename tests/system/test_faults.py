"""A slice of the fault runs: one commit and each row once, whatever is killed or frozen."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from tests.support.modules import run_module

pytestmark = [pytest.mark.system, pytest.mark.nightly]
RUNS = 2  # of all cells, different ones each day; FAULTS_SEED=... repeats a day's


@pytest.mark.parametrize(
    "rig",
    [
        ("faults",),
        ("faults", "--via", "bash"),
        ("faults.contended",),
        pytest.param(("faults.yarn",), marks=pytest.mark.yarn),
    ],
    ids=" ".join,
)
def test_one_task_run_makes_one_commit(capsys, rig):
    seed = int(os.environ.get("FAULTS_SEED") or datetime.now(UTC).strftime("%Y%m%d"))
    with capsys.disabled():
        print(f"FAULTS_SEED={seed}", end=" ", flush=True)
    done = run_module(*rig, "--runs", RUNS, "--seed", seed)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert f"{RUNS} runs, seed {seed}: 0 wrong" in done.stdout
