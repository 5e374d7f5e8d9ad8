"""The operator's typed choices: what cannot be is refused when the DAG is parsed."""

from __future__ import annotations

import pytest

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.conflict.strategy import Strategy
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.operators.hudi_write import HudiWriteOperator
from tests.support.policies import with_policy


def task(**given):
    return HudiWriteOperator(
        **{"task_id": "t", "application": "a.py", "table": "/t", **with_policy(given)}
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (True, EarlyDetection.ON),
        (False, EarlyDetection.OFF),
        ("off", EarlyDetection.OFF),
        ("timeline_server", EarlyDetection.TIMELINE_SERVER),
        (EarlyDetection.SIMPLE_DIRECT, EarlyDetection.SIMPLE_DIRECT),
    ],
)
def test_early_detection_is_off_on_or_one_of_hudis_strategies(given, meant):
    assert task(early_conflict_detection=given).policy.early_conflict_detection is meant


def test_conflict_resolution_is_left_to_hudi_or_one_of_its_strategies():
    assert task().policy.conflict_resolution is None
    assert task(conflict_resolution="prefer_writer").policy.conflict_resolution is Strategy.PREFER_WRITER
    assert Strategy.SIMPLE.class_name.endswith("SimpleConcurrentFileWritesConflictResolutionStrategy")


@pytest.mark.parametrize(
    ("given", "field", "remedy"),
    [
        ({"early_conflict_detection": "sometimes"}, "early_conflict_detection", "'simple_direct'"),
        ({"early_conflict_detection": None}, "early_conflict_detection", "use one of 'off', 'on'"),
        ({"conflict_resolution": "first wins"}, "conflict_resolution", "'prefer_writer'"),
        (
            {"early_conflict_detection": "timeline_server", "table": "hdfs://n/t"},
            "early_conflict_detection",
            "use 'simple_direct'",
        ),
        (
            {
                "early_conflict_detection": "simple_direct",
                "hudi_options": {"hoodie.write.markers.type": "TIMELINE_SERVER_BASED"},
            },
            "early_conflict_detection",
            "remove hoodie.write.markers.type",
        ),
        (
            {
                "hudi_options": {
                    "hoodie.write.lock.conflict.resolution.strategy": Strategy.SIMPLE.class_name
                }
            },
            "hudi_options",
            "use conflict_resolution",
        ),
        (
            {"hudi_options": {"hoodie.write.concurrency.early.conflict.detection.enable": "true"}},
            "hudi_options",
            "use early_conflict_detection",
        ),
        (
            {"conflict_resolution": "bucket_index", "hudi_options": {"hoodie.index.type": "SIMPLE"}},
            "conflict_resolution",
            "use 'simple'",
        ),
    ],
)
def test_wrong_pairs_are_refused_with_field_and_remedy(given, field, remedy):
    with pytest.raises(ConfigurationError) as caught:
        task(**given)
    assert caught.value.field == field
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    "given",
    [
        {"early_conflict_detection": "timeline_server", "table": "{{ var.value.lake }}://x/t"},
        {"conflict_resolution": "bucket_index"},
        {"conflict_resolution": "bucket_index", "hudi_options": {"hoodie.index.type": "bucket"}},
        {"early_conflict_detection": "off", "hudi_options": {"hoodie.write.markers.type": "DIRECT"}},
    ],
)
def test_pairs_that_work_are_taken(given):
    assert task(**given)


@pytest.mark.skipif(
    "post_submit_commands" not in HudiWriteOperator.template_fields,
    reason="needs the Spark provider 6.1",
)
@pytest.mark.parametrize("place", ["argument", "default_args"])
@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("post_submit_commands", ["curl -X POST localhost:15020/quitquitquit"], "a task after this one"),
        ("track_driver_via_k8s_api", True, "leave it out"),
        ("yarn_track_via_rm_api", True, "leave it out"),
    ],
)
def test_what_the_spark_provider_offers_for_drivers_elsewhere_is_refused(name, value, remedy, place):
    given = {name: value}
    with pytest.raises(ConfigurationError) as caught:
        task(**(given if place == "argument" else {"default_args": given}))
    assert caught.value.field == name
    assert remedy in caught.value.remedy
    assert task(**{name: None}, default_args=given)
