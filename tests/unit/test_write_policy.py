"""The policy of a writer: a value, single fields, or what the site says."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.write_spec import WritePolicy, site_fields
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator

SITE = {"early_stop": "observe", "preflight_timeout": 60}


def test_single_fields_stand_over_those_of_the_site():
    policy = WritePolicy.of({"early_stop": "off"}, SITE)
    assert (policy.early_stop, policy.preflight_timeout) == (EarlyStop.OFF, timedelta(minutes=1))
    assert WritePolicy.of(None, SITE).early_stop is EarlyStop.OBSERVE


def test_a_policy_stands_for_itself():
    assert WritePolicy.of(WritePolicy(), SITE) == WritePolicy()
    assert WritePolicy().is_queued
    assert not WritePolicy(admission="off").is_queued


def test_operators_have_the_policy_of_the_site(monkeypatch):
    def policy(**given):
        return HudiWriteOperator(task_id="t", application="a.py", table="/t", **given).policy

    monkeypatch.setenv("AIRFLOW__HUDI_OCC__WRITE_POLICY", '{"conflict_resolution": "prefer_writer"}')
    assert policy().conflict_resolution is Strategy.PREFER_WRITER
    assert policy(policy={"early_stop": "off"}).conflict_resolution is Strategy.PREFER_WRITER
    assert policy(policy=WritePolicy()).conflict_resolution is None


@pytest.mark.parametrize("value", [{"earlystop": "off"}, "off", ["early_stop"]])
def test_what_is_no_policy_is_refused(value):
    with pytest.raises(ConfigurationError, match=r"^policy: .*Remedy: "):
        WritePolicy.of(value, {})


@pytest.mark.parametrize("text", ["off", "[]", '"act"'])
def test_a_site_whose_policy_is_no_object_is_told(text):
    with pytest.raises(ConfigurationError, match=r"^\[hudi_occ\] write_policy: .*Remedy: give a JSON"):
        site_fields(text)
