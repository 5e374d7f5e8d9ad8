from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from airflow_occ_provider.in_driver import guard, run_job


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
    assert why == "its commits cannot be guarded: ['s3a://b/t'] configuration"
    assert run_job.GUARD == []


def test_a_jvm_without_janino_has_no_guard():
    jvm = MagicMock()
    jvm.org.codehaus.janino.SimpleCompiler.side_effect = TypeError(
        "'JavaPackage' object is not callable"
    )
    installed, why = guard.installed(jvm, ["s3a://b/t"], None)
    assert installed is None
    assert why == "TypeError: 'JavaPackage' object is not callable"
