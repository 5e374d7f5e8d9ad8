"""When a run of the differential test is good enough."""

from __future__ import annotations

import pytest

from tests.differential.report import Report

CELL = ("upsert", "before")


@pytest.mark.parametrize(("pairs", "undecided", "good"), [(2, 1, True), (39, 3, True), (40, 3, False)])
def test_a_cell_is_judged_by_its_share_of_undecided_pairs_from_40_pairs_on(pairs, undecided, good):
    report = Report()
    report.cells.update({CELL: pairs, ("insert", "after"): 400})
    report.lost.update({CELL: pairs, ("insert", "after"): 200})
    report.undecided.update({CELL: undecided})
    assert report.failures() == ([] if good else [f"undecided in {CELL}: 3 of 40, at most 5%"])
