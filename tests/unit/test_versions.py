"""The tables of releases are made from the results of rigs."""

from __future__ import annotations

from dataclasses import replace

from tests.golden import HUDI_RELEASES
from tests.golden.record_versions import PAGE, page
from tests.support.results import Result, add_result, results


def test_the_page_is_made_from_the_results():
    text = PAGE.read_text()
    assert page(text, list(results())) == text, "run make golden NAME=versions"


def test_a_result_is_added_with_its_date_where_it_is_asked_for(tmp_path, monkeypatch):
    result = Result("faults", "1.0.2", seed=7, runs=20, wrong=1, counts={"controls": 5})
    monkeypatch.delenv("RESULTS", raising=False)
    add_result(result)
    monkeypatch.setenv("RESULTS", str(tmp_path / "results.jsonl"))
    add_result(result)
    add_result(replace(result, hudi="0.15.0"))
    first, second = results(tmp_path / "results.jsonl")
    assert replace(first, date="") == result
    assert first.date
    assert second.hudi == "0.15.0"


def test_runs_of_a_release_are_added_up_and_a_wrong_run_stays_visible():
    ended = [
        Result("faults", "1.0.2", seed=7, runs=20, wrong=0, date="2026-01-01"),
        Result("faults", "1.0.2", seed=8, runs=40, wrong=1, date="2026-01-02"),
        Result("mixed", "0.15.0+1.0.2", seed=9, runs=30, wrong=0, date="2026-01-03"),
    ]
    lines = page(PAGE.read_text(), ended).splitlines()
    (row,) = (line for line in lines if line.startswith("| faults |"))
    cells = dict(zip(("", *HUDI_RELEASES), row.split("|")[1:-1], strict=True))
    assert cells["1.0.2"].strip() == "1 of 60 wrong"
    assert cells["0.15.0"].strip() == "not run"
    assert "| 2026-01-03 | 0.15.0+1.0.2 | mixed | 9 | 0 of 30 | |" in lines
    assert not any(line.startswith("| mixed |") for line in lines)
