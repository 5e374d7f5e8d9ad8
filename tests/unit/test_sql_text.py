"""What a text of Spark SQL writes and reads, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.sql_text import read_sql, split
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
        ("CALL run_something(table => 'trips')", "what the procedure run_something reads is unknown"),
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
        ("trips", "CALL run_something(table => 'other')"),
    ],
)
def test_a_write_to_another_table_is_refused(name, text):
    with pytest.raises(ConfigurationError, match=r"^sql: .*(does not write|is not for) .*Remedy"):
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
        ("FROM src INSERT INTO trips SELECT * INSERT INTO other SELECT *", "a task of its own"),
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
    ],
)
def test_options_of_hudi_are_not_set_in_the_text(text):
    with pytest.raises(ConfigurationError, match=r"sets an option of Hudi.*hudi_options"):
        read(f"{text}; {MERGE}")


def test_what_only_changes_the_session_is_allowed():
    text = """
        SET spark.sql.shuffle.partitions=4;
        CREATE TEMPORARY FUNCTION f AS 'x.F';
        CREATE OR REPLACE TEMP VIEW src AS SELECT 1 AS k;
        CACHE TABLE src; REFRESH TABLE other; SHOW TABLES; DESCRIBE trips;
        CALL show_commits(table => 'other', limit => 1);
    """
    assert len(read(text + MERGE).statements) == 9


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("SELECT 1", r"0 of its statements write \(none\)"),
        ("-- nothing", "0 of its statements write"),
        (f"{MERGE}; DELETE FROM trips", "2 of its statements write"),
        ("CREATE TEMP VIEW trips AS SELECT 1; UPDATE trips SET v = 1", "hides the table"),
        ("MERGE INTO", "cannot be read"),
        ("UPDATE trips SET v = 'open", "is not Spark SQL"),
    ],
)
def test_a_text_that_does_not_write_once_is_refused(text, found):
    with pytest.raises(ConfigurationError, match=found):
        read(text)
