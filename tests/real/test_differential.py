"""A slice of the differential test: real Hudi decides, and the table's metadata predicts it."""

from __future__ import annotations

import pytest

from tests.support.modules import run_module

pytestmark = pytest.mark.real
PAIRS = 12


@pytest.mark.nightly
def test_predictions_from_the_metadata_match_what_hudi_does():
    done = run_module("differential", "--pairs", PAIRS, "--seed", 11, "--slice")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert "MISMATCH" not in done.stdout
