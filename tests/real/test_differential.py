"""A slice of the differential test: real Hudi decides, and the table's metadata has told it before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
PAIRS = 40


@pytest.mark.timeout(900)
def test_what_the_metadata_told_is_what_hudi_did():
    done = subprocess.run(
        [sys.executable, "-m", "tests.differential", "--pairs", str(PAIRS), "--seed", "11", "--slice"],
        cwd=Path(__file__).parents[2],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=880,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "MISMATCH" not in done.stdout
