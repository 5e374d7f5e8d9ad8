"""What a text of Spark SQL writes and reads, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.sql_text import read_sql, refuse_sql, split
from airflow_occ_provider.errors import ConfigurationError

TABLE = "s3a://lake/trips"
MERGE = "MERGE INTO trips AS t USING src AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET *"


def read(text, name="trips", table=TABLE):
    return read_sql(text, table, name)


def test_statements_are_split_outside_of_strings_names_and_comments():
    text = """
        -- first; no statement
        CREATE TEMP VIEW v AS SELECT ';' AS a, "it's; one" AS b; /* ; */ ;;
        UPDATE `a;b` SET x = 'it\\'s;'  -- the end;
    """
    assert list(split(text)) == [
        """CREATE TEMP VIEW v AS SELECT ';' AS a, "it's; one" AS b""",
        "UPDATE `a;b` SET x = 'it\\'s;'",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MERGE, "MERGE reads the rows that it changes"),
        ("UPDATE trips SET v = 1", "UPDATE reads the rows that it changes"),
        ("DELETE FROM trips WHERE v > 3", "DELETE reads the rows that its predicate names"),
        ("DELETE FROM trips", ""),
        ("INSERT INTO trips SELECT * FROM src", ""),
        ("INSERT INTO trips (k, v) VALUES (1, 'trips')", ""),
        ("INSERT OVERWRITE TABLE trips PARTITION (dt) SELECT * FROM src", ""),
        ("INSERT INTO trips SELECT * FROM src LEFT ANTI JOIN trips USING (k)", "it also reads"),
        (
            "WITH old AS (SELECT * FROM default.TRIPS) INSERT INTO trips SELECT * FROM old",
            "it also reads",
        ),
        (
            "CREATE TEMP VIEW v AS SELECT * FROM trips; INSERT INTO trips SELECT * FROM v",
            "it also reads",
        ),
        ("INSERT INTO trips SELECT * FROM parquet.`s3://lake/trips/`", "it also reads"),
        (
            "CREATE TEMPORARY VIEW v USING hudi OPTIONS (path 's3n://lake//trips'); "  # noqa: ISC004
            "INSERT INTO trips SELECT * FROM v",
            "it also reads",
        ),
        *(
            (f"INSERT INTO trips SELECT k, v FROM {function}", "it also reads")
            for function in (
                "hudi_table_changes('trips', 'latest_state', 'earliest')",
                "hudi_table_changes('Default.`trips`', 'cdc', '1') AS c",
                "(SELECT * FROM hudi_metadata('trips'))",
                "hudi_filesystem_view(table => 'spark_catalog.default.trips')",
                "hudi_query_timeline('s3a://lake/trips', 'true')",
            )
        ),
        ("INSERT INTO trips SELECT k, v FROM hudi_table_changes('other', 'cdc', '1')", ""),
        ("INSERT INTO trips SELECT id, 'trips' FROM range(10)", ""),
        ("FROM src INSERT INTO trips SELECT *", ""),
        ("FROM src s JOIN more USING (k) INSERT INTO TABLE trips (k, v) SELECT k, v", ""),
        ("WITH w AS (SELECT 1) FROM w INSERT OVERWRITE trips PARTITION (dt) SELECT *", ""),
        ("FROM trips INSERT INTO trips SELECT *", "it also reads"),
        ("FROM (SELECT * FROM lake.src JOIN trips) INSERT INTO trips SELECT *", "it also reads"),
        ("FROM src INSERT INTO trips SELECT * WHERE k IN (SELECT k FROM trips)", "it also reads"),
    ],
)
def test_a_read_of_the_target_is_seen_in_the_text(text, why):
    found = read(text).reads
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("name", "written", "target"),
    [
        ("trips", "Trips", "`Trips`"),
        ("trips", "default.trips", "`default`.`trips`"),
        ("trips", "spark_catalog.default.`trips`", "`spark_catalog`.`default`.`trips`"),
        ("lake.trips", "lake.trips", "`lake`.`trips`"),
        ("lake.trips", "spark_catalog.lake.trips", "`spark_catalog`.`lake`.`trips`"),
    ],
)
def test_the_table_is_known_by_its_name_and_its_full_names(name, written, target):
    assert read(f"DELETE FROM {written}", name).target == target


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("trips", "UPDATE lake.trips SET v = 1"),
        ("lake.trips", "UPDATE trips SET v = 1"),
        ("trips", "INSERT INTO other SELECT * FROM trips"),
        ("trips", "MERGE INTO other USING trips ON other.k = trips.k WHEN MATCHED THEN DELETE"),
        ("trips", "DELETE FROM hudi.`s3a://lake/other` WHERE v = 1"),
        ("trips", f"{MERGE}; INSERT INTO other SELECT 1"),
        ("trips", "FROM trips INSERT INTO other SELECT *"),
        ("trips", "FROM src INSERT OVERWRITE DIRECTORY '/x' SELECT *"),
    ],
)
def test_a_write_to_another_table_is_refused(name, text):
    with pytest.raises(ConfigurationError, match=r"^sql: .*does not write .*Remedy"):
        read(text, name)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("DROP TABLE trips", "HudiLeaseOperator"),
        ("TRUNCATE TABLE trips", "HudiLeaseOperator"),
        ("ALTER TABLE trips ADD COLUMNS (x int)", "HudiLeaseOperator"),
        ("ALTER TABLE trips DROP PARTITION (dt = '1')", "HudiLeaseOperator"),
        ("CREATE TABLE other USING hudi AS SELECT 1", "HudiLeaseOperator"),
        ("CREATE VIEW v AS SELECT 1", "HudiLeaseOperator"),
        ("CREATE INDEX i ON trips (a)", "HudiLeaseOperator"),
        ("EXECUTE IMMEDIATE 'DROP TABLE trips'", "HudiLeaseOperator"),
        ("CALL rollback_to_instant(table => 'trips', instant_time => '1')", "HudiLeaseOperator"),
        ("CALL system.run_clustering(table => 'trips')", "HudiClusteringOperator"),
        ("CALL run_compaction(op => 'run', table => 'trips')", "HudiCompactionOperator"),
        ("CALL run_clean(table => 'trips')", "HudiCleanOperator"),
        ("CALL copy_to_table(table => 'trips', new_table => 'other')", "HudiLeaseOperator"),
        *(
            (f"CALL {name}(table => 'trips')", "HudiLeaseOperator")
            for name in (
                "truncate_table",
                "drop_partition",
                "archive_commits",
                "system.`run_rollback_inflight_tableservice`",
                "show_invalid_parquet",  # it may delete them
                "show_and_destroy",
                "of_a_later_release",
            )
        ),
        ("CALL/**/ copy_to_temp_view (table => 'trips')", "CREATE TEMPORARY VIEW"),
        ("FROM src INSERT INTO trips SELECT * INSERT INTO other SELECT *", "a task of its own"),
        ("FROM src INSERT INTO trips SELECT a INSERT INTO trips SELECT b", "a task of its own"),
        ("FROM (FROM src INSERT INTO other SELECT *) INSERT INTO trips SELECT *", "a task of its own"),
        ("USE lake", "name tables with their database"),
    ],
)
def test_what_the_check_for_conflicts_does_not_cover_is_refused(text, remedy):
    with pytest.raises(ConfigurationError, match=rf"is not covered by .*Remedy: .*{remedy}"):
        read(f"{text}; {MERGE}")


@pytest.mark.parametrize(
    "text",
    [
        "SET hoodie.write.concurrency.mode=single_writer",
        "SET spark.hoodie.write.lock.provider = x",
        "set  hoodie.cleaner.policy.failed.writes=EAGER",
        "SET _airflow_identity=other",
        "SET `hoodie.write.concurrency.mode`=SINGLE_WRITER",
        "SET `spark.hoodie.write.lock.provider` = 'x'",
        "set -- a comment\n `HOODIE.x` = 1",
        "SET/**/hoodie.x=1",
        "RESET `hoodie.x`",
        "RESET hoodie.write.lock.provider",
    ],
)
def test_options_of_hudi_are_not_set_in_the_text(text):
    with pytest.raises(ConfigurationError, match=r"sets an option of Hudi.*hudi_options"):
        read(f"{text}; {MERGE}")


@pytest.mark.parametrize(
    "text",
    [
        "SET key=hoodie.write.concurrency.mode",
        "SET hivevar:key = x",
        "SET `spark.sql.catalog.spark_catalog` = x",
        "SET spark.sql.catalog.other=x",
        "SET spark.sql.extensions=x",
        "SET spark.serializer=x",
        "RESET",
        "RESET `spark.serializer`",
    ],
)
def test_settings_that_are_not_spark_sqls_own_are_not_set_in_the_text(text):
    with pytest.raises(ConfigurationError, match=r"(sets|resets) .*Spark SQL's own.*give it in conf"):
        read(f"{text}; {MERGE}")


@pytest.mark.parametrize("text", ["SET ${key}=1", "DELETE FROM ${spark.sql.x}", "SELECT '${env:USER}'"])
def test_a_text_that_spark_changes_before_it_reads_it_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"has a \$\{variable\}.*use a template"):
        read(f"{text}; {MERGE}")


def test_what_only_changes_the_session_is_allowed():
    text = """
        SET spark.sql.shuffle.partitions=4; SET `spark.sql.ansi.enabled` = true; SET; SET -v;
        SET TIME ZONE 'Europe/Berlin'; RESET spark.sql.shuffle.partitions;
        CREATE TEMPORARY FUNCTION f AS 'x.F';
        CREATE OR REPLACE TEMP VIEW src AS SELECT 1 AS k;
        CACHE TABLE src; REFRESH TABLE other; SHOW TABLES; DESCRIBE trips;
        CALL show_commits(table => 'other', limit => 1);
    """
    assert len(read(text + MERGE).statements) == 14


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", r"0 of its statements write \(none\)"),
        ("-- nothing", "0 of its statements write"),
        (f"{MERGE}; DELETE FROM trips", "2 of its statements write"),
        (f"{MERGE}; FROM src INSERT INTO trips SELECT *", "2 of its statements write"),
        ("CREATE TEMP VIEW trips AS SELECT 1; UPDATE trips SET v = 1", "hides the table"),
        ("MERGE INTO", "cannot be read"),
        ("UPDATE trips SET v = 'open", "is not Spark SQL"),
    ],
)
def test_a_text_that_does_not_write_once_is_refused(text, found):
    with pytest.raises(ConfigurationError, match=found):
        read(text)


@pytest.mark.parametrize(
    ("text", "overwrites"),
    [
        ("INSERT OVERWRITE trips SELECT * FROM source", True),
        ("INSERT OVERWRITE TABLE trips PARTITION (dt = '1') SELECT * FROM source", True),
        ("INSERT INTO trips SELECT * FROM source", False),
        ("FROM source INSERT OVERWRITE trips SELECT *", True),
        ("FROM source INSERT INTO trips SELECT *", False),
        ("DELETE FROM trips WHERE id = 1", False),
    ],
)
def test_an_overwrite_is_seen_in_the_text(text, overwrites):
    assert read_sql(text, "/lake/trips", "trips").overwrites is overwrites


@pytest.mark.parametrize(
    "text",
    [
        "FROM source INSERT INTO lake.trips SELECT *",
        "CREATE TEMP VIEW v AS SELECT 1; WITH w AS (SELECT 1) FROM w INSERT INTO lake.trips SELECT *",
        "INSERT INTO lake.trips SELECT * FROM source",
    ],
)
def test_the_table_that_is_written_first_counts_as_the_tasks_if_its_name_is_unknown(text):
    refuse_sql(text, TABLE, None)
    with pytest.raises(ConfigurationError, match="2 of its statements write"):
        refuse_sql(f"{text}; {text}", TABLE, None)
    with pytest.raises(ConfigurationError, match=r"does not write lake\.trips"):
        refuse_sql(f"{text}; INSERT INTO other SELECT 1", TABLE, None)
