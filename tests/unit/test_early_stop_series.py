"""The report of the series that compares early stop with Hudi, and how its races are drawn."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from airflow_occ_provider.attempts.outcome import Outcome, Stop
from tests.differential.observation import Fate
from tests.early_stop.race import POINTS, draw
from tests.early_stop.report import Report
from tests.early_stop.rig import Course

RACE = draw(7, 0, "1.2.0")
LOST = Stop(Outcome.COMMIT_CONFLICT, "w11 can no longer commit", "w01")
GAVE_WAY = Stop(Outcome.YIELDED, "w11 gives way", "w01")


def course(name, result, stop=None):
    found = [one if stop is one else None for one in (GAVE_WAY, LOST)]
    return Course(name, *found, Fate(result, "", (f"{name}1.commit",)))


def reported(*races):
    report = Report()
    for courses in races:
        report.add(RACE, courses)
    return report


def failures(*races):
    return reported(*races).failures()


BOTH = [course("w0", "committed"), course("w1", "conflict", LOST)]
CHOSEN = [course("w0", "committed"), course("w1", "conflict", GAVE_WAY)]


def test_a_series_in_which_all_came_true_passes():
    report = reported(BOTH, CHOSEN)
    assert report.failures() == []
    assert (report.certain, report.choices, report.vain, report.lost, report.named) == (1, 1, 0, 2, 2)


@pytest.mark.parametrize("result", ["committed", "error"])
def test_a_finding_of_a_write_that_hudi_did_not_refuse_is_wrong(result):
    wrong = [course("w0", "committed"), course("w1", result, LOST)]
    assert any("WRONG" in line for line in failures(BOTH, CHOSEN, wrong))


def test_a_choice_is_in_vain_if_the_earlier_write_did_not_commit():
    vain = [course("w0", "conflict", LOST), course("w1", "conflict", GAVE_WAY)]
    assert any("in vain: 1 of 2" in line for line in failures(CHOSEN, vain))
    assert failures(*[CHOSEN] * 19, vain) == []
    assert any("in vain: 1 of 19" in line for line in failures(BOTH, *[CHOSEN] * 18, vain))


def test_a_loss_that_follows_a_choice_counts_as_well():
    both = Course("w1", GAVE_WAY, LOST, Fate("conflict", "", ("w11.commit",)))
    report = reported([course("w0", "committed"), both])
    assert (report.certain, report.choices, report.lost, report.named) == (1, 1, 1, 1)
    wrong = replace(both, fate=Fate("committed", "", ("w11.commit",)))
    assert any("WRONG" in line for line in failures([course("w0", "committed"), wrong]))


def test_a_choice_that_comes_too_late_ends_nobody():
    late = [course("w0", "conflict", LOST), course("w1", "committed", GAVE_WAY)]
    report = reported(BOTH, CHOSEN, late)
    assert (report.choices, report.vain, report.late) == (1, 0, 1)


def test_nine_of_ten_losers_have_to_be_named():
    unnamed = [course("w0", "committed"), course("w1", "early")]
    assert failures(CHOSEN, *[BOTH] * 8, unnamed) == []
    assert any("named: 8 of 9" in line for line in failures(CHOSEN, *[BOTH] * 7, unnamed))


@pytest.mark.parametrize("races", [[BOTH], [CHOSEN], []])
def test_a_series_without_both_kinds_of_findings_proves_nothing(races):
    assert "nothing was foreseen" in failures(*races)


def test_a_race_that_did_not_run_as_planned_fails_the_series():
    report = reported(BOTH, CHOSEN)
    report.add_rig_error(RACE, RuntimeError("latch"))
    assert report.failures() == ["1.2.0 seed 7 index 0: RIG ERROR RuntimeError('latch')"]


def test_a_seed_draws_the_same_races_again_and_all_kinds_of_them():
    drawn = [draw(7, index, "1.2.0") for index in range(200)]
    assert drawn == [draw(7, index, "1.2.0") for index in range(200)]
    assert drawn != [draw(8, index, "1.2.0") for index in range(200)]
    turns = [turn for race in drawn for turn in race.turns]
    assert Counter(len(race.turns) for race in drawn).keys() == {2, 3, 4}
    assert {turn.write.operation for turn in turns} == {"upsert", "delete", "insert", "insert_overwrite"}
    assert {len(turn.holds_s) for turn in turns} == {len(POINTS)}
    assert len({race.template for race in drawn}) == 8
