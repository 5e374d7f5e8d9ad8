from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from airflow_occ_provider.driver.contract import PATIENCE_S, Life
from airflow_occ_provider.in_driver import granted, guard, run_job


@pytest.fixture
def jvm(monkeypatch):
    monkeypatch.setattr(run_job, "hadoop_configuration", lambda jvm: "configuration")
    monkeypatch.setattr(run_job, "GUARD", [])
    return MagicMock()


def program(result):
    return f"def installed(jvm, tables, configuration):\n    return {result}\n"


def test_a_driver_has_no_guard_unless_its_payload_has_one(jvm):
    assert run_job.unguarded(jvm, None) is None
    assert run_job.GUARD == []


def test_a_driver_whose_commits_cannot_be_guarded_says_why(jvm):
    wanted = {"program": program("None, f'{tables} {configuration}'"), "tables": ["s3a://b/t"]}
    why = run_job.unguarded(jvm, wanted)
    assert (
        why == "only a lease protects it, and its commits cannot be guarded: ['s3a://b/t'] configuration"
    )
    assert run_job.GUARD == []


def test_a_jvm_without_janino_has_no_guard():
    jvm = MagicMock()
    jvm.org.codehaus.janino.SimpleCompiler.side_effect = TypeError(
        "'JavaPackage' object is not callable"
    )
    installed, why = guard.installed(jvm, ["s3a://b/t"], None)
    assert installed is None
    assert why == "TypeError: 'JavaPackage' object is not callable"


def test_a_guarded_driver_begins_no_commit_before_a_tick_is_answered():
    """The guard counts from its own clocks, so it asks for the rest of the life itself."""
    begun = granted.moment()
    life, extended = Life.begin(120.0, begun), MagicMock()
    driver = granted.GrantedDriver(
        MagicMock(), "n", life, MagicMock(), say=MagicMock(), kill=MagicMock()
    )
    driver.guarded(extended)
    driver._life = life.tick(begun)
    driver._answer(1)
    (before, _), (after, _) = extended.extend.call_args_list
    assert (before[1], after[1]) == (float("inf"), 30.0)
    assert before[2] == PATIENCE_S  # a short job waits for its first answer
    assert 0 < after[0]() <= 120.0


def test_an_endless_life_has_no_end_in_the_guard():
    installed = guard.CommitGuard(MagicMock(), [], None)
    installed.extend(lambda: float("inf"), 0.0)
    installed._java.extend.assert_not_called()
    installed._java.nanoTime.return_value = 7
    installed.extend(lambda: 60.0, float("inf"))
    ((nanos, _, seconds, margin_s, _), _) = installed._java.extend.call_args
    assert (nanos, seconds, margin_s) == (7, 60.0, 1e9)
