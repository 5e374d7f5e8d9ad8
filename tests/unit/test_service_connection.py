"""A connection of a service, to which spark-submit cannot submit: it is refused with the operator."""

from __future__ import annotations

import json

import pytest

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hooks.spark import spark_hook
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from airflow_occ_provider.places.of_task import PlacedTask, drivers_of


def drivers(monkeypatch, **connection):
    monkeypatch.setenv("AIRFLOW_CONN_PLACE", json.dumps(connection))
    task = HudiWriteOperator(task_id="t", application="job.py", table="/lake/t", conn_id="place")
    return drivers_of(PlacedTask(task, {}, spark_hook(task)))


@pytest.mark.parametrize(
    ("connection", "operator"),
    [
        ({"conn_type": "livy", "host": "livy.internal", "port": 8998}, "LivyOperator"),
        ({"conn_type": "aws"}, "EmrServerlessStartJobOperator"),
        ({"conn_type": "aws", "extra": {"region_name": "eu-west-1"}}, "EmrServerlessStartJobOperator"),
    ],
)
def test_the_refusal_names_the_operator_that_submits_there(monkeypatch, connection, operator):
    with pytest.raises(ConfigurationError, match=f"conn_id.*via={operator}"):
        drivers(monkeypatch, **connection)


def test_a_connection_of_spark_is_taken(monkeypatch):
    assert drivers(monkeypatch, conn_type="spark", host="local[2]").deploy_mode is None
