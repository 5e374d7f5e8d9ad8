from __future__ import annotations

import pytest

from airflow_occ_provider.hudi import early_detection
from airflow_occ_provider.hudi.early_detection import EarlyDetection
from airflow_occ_provider.hudi.options import contradictions, is_secret, writer_options

MODE = "hoodie.write.concurrency.mode"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (MODE, "single_writer"),
        (MODE, " SINGLE_WRITER "),
        (f"spark.{MODE}", "single_writer"),
        (MODE, "NON_BLOCKING_CONCURRENCY_CONTROL"),
        ("hoodie.cleaner.policy.failed.writes", "EAGER"),
        ("hoodie.clean.failed.writes.policy", "never"),
        (
            "hoodie.write.lock.provider",
            "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        ),
        ("hoodie.datasource.write.commitmeta.key.prefix", "mine_"),
        ("_airflow_identity", "forged"),
    ],
)
def test_what_contradicts_is_named_with_its_place_and_a_remedy(key, value):
    (found,) = contradictions([(key, value)], "conf")
    assert (found.source, found.key) == ("conf", key)
    assert found.remedy


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (MODE, "optimistic_concurrency_control"),
        ("hoodie.cleaner.policy.failed.writes", "lazy"),
        ("hoodie.datasource.write.commitmeta.key.prefix", "_"),
        ("_my_label", "x"),
        ("spark.executor.memory", "2g"),
        ("hoodie.write.lock.provider", "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"),
    ],
)
def test_what_does_not_contradict_passes(key, value):
    assert list(contradictions([(key, value)], "conf")) == []


def test_every_protected_writer_is_optimistic_and_lazy():
    options = writer_options({"hoodie.write.lock.provider": "x"}, {})
    assert options[MODE] == "OPTIMISTIC_CONCURRENCY_CONTROL"
    assert options["hoodie.cleaner.policy.failed.writes"] == "LAZY"
    assert not any("lock_key" in key for key in options)
    assert list(contradictions(options.items(), "ours")) == []


@pytest.mark.parametrize(
    ("wanted", "scheme", "paths", "strategy"),
    [
        ("on", "file", None, "SimpleDirectMarkerBasedDetectionStrategy"),
        ("on", "hdfs", ("dt_x=1",), "SimpleDirectMarkerBasedDetectionStrategy"),
        ("on", "s3a", ("dt=1",), "AsyncTimelineServerBasedDetectionStrategy"),
        ("on", "s3a", ("event_date=1",), None),
        ("on", "s3a", None, None),
        ("off", "file", None, None),
        ("simple_direct", "s3a", ("event_date=1",), "SimpleDirectMarkerBasedDetectionStrategy"),
        ("transaction_direct", "file", None, "SimpleTransactionDirectMarkerBasedDetectionStrategy"),
        ("timeline_server", "file", None, "AsyncTimelineServerBasedDetectionStrategy"),
    ],
)
def test_early_detection_follows_the_storage(wanted, scheme, paths, strategy):
    choice = early_detection.choose(EarlyDetection(wanted), scheme, paths)
    on = choice.options["hoodie.write.concurrency.early.conflict.detection.enable"] == "true"
    assert on is (strategy is not None)
    assert strategy is None or any(value.endswith(strategy) for value in choice.options.values())
    assert choice.reason


def test_secret_keys():
    assert is_secret("fs.s3a.secret.key")
    assert is_secret("hoodie.datasource.hive_sync.password")
    assert is_secret("fs.s3a.access.key")
    assert not is_secret("hoodie.write.lock.zookeeper.lock_key")


@pytest.mark.parametrize(
    ("wanted", "scheme", "options"),
    [
        ("timeline_server", "hdfs", {}),
        ("timeline_server", "file", {"hoodie.write.markers.type": "DIRECT"}),
        ("timeline_server", None, {"hoodie.embed.timeline.server": False}),
        ("simple_direct", None, {"hoodie.write.markers.type": "timeline_server_based"}),
        ("transaction_direct", None, {"hoodie.write.markers.type": "TIMELINE_SERVER_BASED"}),
    ],
)
def test_a_strategy_with_the_wrong_markers_is_objected_to(wanted, scheme, options):
    what, remedy = early_detection.objection(EarlyDetection(wanted), scheme, options)
    assert what
    assert remedy
    assert early_detection.objection(EarlyDetection(wanted), "s3a", {}) is None
