from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.writer import early_detection, secrets
from airflow_occ_provider.hudi.writer.early_detection import EarlyDetection
from airflow_occ_provider.hudi.writer.options import contradictions, writer_options
from airflow_occ_provider.hudi.writer.secrets import mask_named, redact, secrets_in, spark_secrets

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
        ("spark.remote", "sc://shared"),
        ("hoodie.datasource.write.dataframe.path.enable", "true"),
        ("spark.hoodie.datasource.write.dataframe.path.enable", "TRUE"),
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
        ("hoodie.datasource.write.dataframe.path.enable", "false"),
        ("spark.remote.shuffle", "x"),
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


@pytest.mark.parametrize(
    "key",
    [
        "fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.bucket.lake.secret.key",
        "fs.s3a.access.key",
        "fs.s3a.session.token",
        "fs.azure.account.key.lake.dfs.core.windows.net",
        "fs.azure.account.oauth2.client.secret.lake.dfs.core.windows.net",
        "fs.azure.sas.trips.lake.blob.core.windows.net",
        "fs.azure.sas.fixed.token.lake.dfs.core.windows.net",
        "fs.gs.auth.service.account.private.key",
        "hoodie.datasource.hive_sync.password",
        "hoodie.meta.sync.datahub.emitter.token",
        "hoodie.metrics.datadog.api.key",
        "hoodie.write.commit.callback.http.custom.headers",
        "javax.jdo.option.ConnectionPassword",
        "sasl.jaas.config",
        "spark.ssl.keyPassword",
    ],
)
def test_the_values_of_secret_keys_are_hidden(key):
    assert secrets_in(key, "do-not-show") == ("do-not-show",)
    assert redact({key: "do-not-show"}) == {key: "***"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("_airflow_order_token", "20261122.4001"),
        ("_airflow_latest_instant", "20261122091720286"),
        ("dfs.block.access.token.enable", "false"),
        ("fs.azure.account.auth.type", "OAuth"),
        ("fs.azure.account.keyprovider.lake.dfs.core.windows.net", "org.example.ShellKeyProvider"),
        ("fs.azure.sas.token.provider.type", "org.example.SasProvider"),
        ("fs.s3a.aws.credentials.provider", "org.example.CredentialsProvider"),
        ("hadoop.security.credential.provider.path", "jceks://hdfs/lake.jceks"),
        ("hoodie.datasource.hive_sync.jdbcurl", "jdbc:hive2://hive:10000/;ssl=true"),
        ("hoodie.datasource.write.recordkey.field", "token"),
        ("hoodie.metrics.datadog.api.key.supplier", "org.example.Keys"),
        ("hoodie.write.lock.dynamodb.partition_key", "trips"),
        ("hoodie.write.lock.zookeeper.lock_key", "trips"),
        ("hoodie.write.lock.zookeeper.url", "zk1:2181,zk2:2181"),
        ("fs.s3a.secret.key", ""),
    ],
)
def test_what_is_no_secret_is_shown(key, value):
    assert secrets_in(key, value) == ()
    assert redact({key: value}) == {key: value}


@pytest.mark.parametrize(
    ("key", "value", "seen"),
    [
        (
            "hoodie.datasource.hive_sync.jdbcurl",
            "jdbc:hive2://hive:10000/;user=etl;password=s3cr3t;ssl=true",
            "jdbc:hive2://hive:10000/;user=etl;password=***;ssl=true",
        ),
        (
            "hoodie.streamer.schemaprovider.registry.url",
            "https://etl:s3cr3t@registry:8081/subjects",
            "https://etl:***@registry:8081/subjects",
        ),
        (
            "spark.driver.extraJavaOptions",
            "-Xmx2g -Djavax.net.ssl.trustStorePassword=s3cr3t -Dx=y",
            "-Xmx2g -Djavax.net.ssl.trustStorePassword=*** -Dx=y",
        ),
    ],
)
def test_of_a_url_and_of_jvm_options_only_the_password_is_hidden(key, value, seen):
    assert secrets_in(key, value) == ("s3cr3t",)
    assert redact({key: value}) == {key: seen}


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
    what, remedy = early_detection.contradiction(EarlyDetection(wanted), scheme, options)
    assert what
    assert remedy
    assert early_detection.contradiction(EarlyDetection(wanted), "s3a", {}) is None


SPARK = {
    "spark.hadoop.fs.s3a.secret.key": "the-secret",
    "spark.my.tokens.ids": "the-token",  # as Spark's own regular expression names it
    "spark.jdbc.url": "jdbc:x;password=the-password",
    "spark.hadoop.dfs.block.access.token.enable": "true",
    "spark.yarn.tokens.renewal": "30s",
    "spark.my.pin": "the-pin",
    "spark.app.name": "shown",
}


def test_the_secrets_of_spark_settings_are_those_that_spark_names_and_ours():
    found = ["the-password", "the-secret", "the-token"]
    assert spark_secrets(SPARK) == found
    regex = {"spark.redaction.regex": "(?i)\\bPIN\\b"}
    assert spark_secrets({**SPARK, **regex}) == sorted([*found, "the-pin"])
    assert spark_secrets({**SPARK, "spark.redaction.regex": "(unread[able"}) == found


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("spark.my.tokens.ids=the-token", "spark.my.tokens.ids=***"),
        ("--conf spark.my.secret.of.mine=abc next", "--conf spark.my.secret.of.mine=*** next"),
        ("dfs.block.access.token.enable=true", "dfs.block.access.token.enable=true"),
        ("instantTime=20261123142547164", "instantTime=20261123142547164"),
    ],
)
def test_a_value_is_masked_by_the_name_before_it(text, masked):
    assert mask_named(text) == masked


def test_a_line_without_a_name_is_not_searched(monkeypatch):
    monkeypatch.setattr(secrets, "_IN_VALUE", None)
    assert mask_named("26/11/23 10:00:00 INFO X: password follows") == (
        "26/11/23 10:00:00 INFO X: password follows"
    )
