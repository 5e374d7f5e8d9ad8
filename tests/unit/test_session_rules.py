"""What the driver stops: options, settings and statements of the job's own code."""

from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.writer.options import (
    LOCK_PROVIDER,
    METASTORE_LOCK_PROVIDER,
    RULES,
    SPARK_SETTINGS,
    ZOOKEEPER_LOCK_PROVIDER,
    job_rules,
    writer_options,
    zookeeper_lock_options,
)
from airflow_occ_provider.in_driver import run_job, session_rules

LOCK = zookeeper_lock_options(
    "zk:2181",
    "/locks",
    session_timeout_ms=1,
    connection_timeout_ms=1,
    wait_time_ms=1,
    num_retries=1,
)
OPTIONS = writer_options(LOCK, {})
MODE = "hoodie.write.concurrency.mode"


def problem(key, value, rules=None):
    rules = [rule._asdict() for rule in rules or job_rules(OPTIONS)]
    return run_job.contradiction([(key, session_rules.text(value))], rules, "the job")


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        (MODE, "SINGLE_WRITER", "does not check for conflicts"),
        (MODE, "non_blocking_concurrency_control", r"\(NBCC\) overlapping writers all commit"),
        ("spark.hoodie.cleaner.policy.failed.writes", "EAGER", "rolls back live writers"),
        ("hoodie.clean.failed.writes.policy", "NEVER", "rolls back live writers"),
        (LOCK_PROVIDER, "x.InProcessLockProvider", "set it in the lock connection"),
        (LOCK_PROVIDER, METASTORE_LOCK_PROVIDER, "need the lock of lock_conn_id"),
        ("hoodie.write.lock.zookeeper.url", "other:2181", "need the lock of lock_conn_id"),
        ("hoodie.write.lock.zookeeper.lock_key", "other", "need the lock of lock_conn_id"),
        ("spark.hoodie.write.lock.filesystem.path", "/x", "need the lock of lock_conn_id"),
        ("hoodie.client.heartbeat.interval_in_ms", 600_000, "use hudi_options"),
        ("hoodie.datasource.write.commitmeta.key.prefix", "x", "cannot be signed"),
        ("_airflow_identity", "other", "choose another key"),
        ("spark.serializer", "org.apache.spark.serializer.JavaSerializer", "only with .*Kryo"),
        ("spark.speculation", True, "two attempts of one task"),
    ],
)
def test_what_a_job_sets_against_its_protection_is_named_with_the_remedy(key, value, remedy):
    assert problem(key, value).startswith(f"the job has {key}={session_rules.text(value)}: ")
    assert run_job.re.search(remedy, problem(key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *OPTIONS.items(),
        *SPARK_SETTINGS.items(),
        (MODE, "optimistic_concurrency_control"),
        ("hoodie.write.lock.wait_time_ms", 60_000),
        ("hoodie.write.lock.zookeeper.session_timeout_ms", 60_000),
        ("hoodie.write.lock.num_retries", 3),
        ("hoodie.datasource.write.operation", "upsert"),
        ("spark.speculation", False),
    ],
)
def test_a_job_may_repeat_its_protection_and_set_what_is_its_own(key, value):
    assert problem(key, value) is None


def test_an_attempt_without_options_of_a_lock_allows_no_lock_of_the_job():
    rules = job_rules({LOCK_PROVIDER: ZOOKEEPER_LOCK_PROVIDER})
    assert problem(LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER, rules) is None
    assert problem("hoodie.write.lock.zookeeper.url", "zk:2181", rules)
    assert problem(LOCK_PROVIDER, ZOOKEEPER_LOCK_PROVIDER, job_rules({}))
    assert len(job_rules({})) > len(RULES)


class Writer:
    """A class of the shape of PySpark's writers."""

    def __init__(self):
        self.passed = []

    def option(self, key, value):
        self.passed.append((key, value))
        return self

    def options(self, **options):
        for key, value in options.items():
            self.passed.append((key, value))
        return self


@pytest.mark.parametrize(
    "write",
    [
        lambda writer: writer.option(MODE, "SINGLE_WRITER"),
        lambda writer: writer.option(key=MODE, value="SINGLE_WRITER"),
        lambda writer: writer.options(**{"a": 1, MODE: "SINGLE_WRITER"}),
        lambda writer: writer.options(**{"_": 1, "self.x": 2, MODE: "SINGLE_WRITER"}),
    ],
)
def test_a_writer_passes_nothing_on_that_is_stopped(write):
    class Checked(Writer):
        pass

    def check(pairs, place):
        if dict(pairs).get(MODE):
            raise SystemExit(place)

    session_rules.watch_options(Checked, check)
    writer = Checked()
    assert writer.option("a", 1).options(b=2).passed == [("a", 1), ("b", 2)]
    with pytest.raises(SystemExit, match="the job's own write"):
        write(writer)
    assert len(writer.passed) == 2
    session_rules.watch_options(None, check)  # a class that this release of PySpark does not have


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN DELETE", "t"),
        ("-- nightly\n/* MERGE INTO x */ merge  into `lake`.`t` AS a USING s ON true", "`lake`.`t`"),
        ("UPDATE lake.t SET v = 1", "lake.t"),
        ("DELETE FROM t WHERE v = 1", "t"),
        ("DELETE FROM t", ""),
        ("INSERT INTO t SELECT * FROM s", ""),
        ("INSERT INTO t SELECT * FROM t2", ""),
        ("INSERT OVERWRITE TABLE t SELECT * FROM s LEFT JOIN t ON true", "t"),
        ("WITH old AS (SELECT * FROM T) INSERT INTO t SELECT * FROM old", "t"),
        ("FROM t INSERT INTO t SELECT *", "t"),
        ("FROM s INSERT OVERWRITE TABLE t SELECT * WHERE k IN (SELECT k FROM t)", "t"),
        ("FROM s INSERT INTO t SELECT *", ""),
        ("FROM t INSERT INTO u SELECT * INSERT INTO t SELECT *", "t"),
        ("FROM s INSERT INTO u SELECT * INSERT INTO t SELECT *", ""),
        ("SELECT * FROM t", ""),
        ("SELECT 'MERGE INTO t'", ""),
        ("SET spark.sql.shuffle.partitions=1", ""),
    ],
)
def test_a_statement_that_reads_what_it_writes_is_seen(statement, name):
    assert session_rules.read_table(statement) == name


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("a", 1), {}),
        ((), {"key": "a", "value": 1}),
        ((), {"map": {"a": 1}}),
    ],
)
def test_the_settings_of_a_builder_are_seen_in_each_form(given, named):
    assert list(session_rules.builder_settings(*given, **named)) == [("a", 1)]
