"""Jobs of each kind on real Hudi, and the rows that they leave."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path

from airflow_occ_provider.attempts.jobs import Function
from airflow_occ_provider.attempts.outcome import Outcome
from tests.differential.session import compile_scala
from tests.support.writers import NO_METADATA_TABLE, Writer

JOBS = Path(__file__).parents[1] / "jobs"
NEW_TABLE = {
    **NO_METADATA_TABLE,
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
}
MERGE = """
    -- the changes; this is no statement
    CREATE TEMPORARY VIEW changes AS
    SELECT 'k1' AS k, 'a' AS p, 10 AS v UNION ALL SELECT 'k;9', 'a', 9;
    MERGE INTO t USING changes AS c ON t.k = c.k
    WHEN MATCHED THEN UPDATE SET t.v = t.v + c.v WHEN NOT MATCHED THEN INSERT *;
"""


def returns_rows(spark, first, number):
    return spark.range(first, first + number).selectExpr(
        "concat('k', id) as k", "'a' as p", "cast(id as int) as v"
    )


def checks_and_writes_nothing(spark, expected):
    rows = spark.read.format("hudi").load(expected["table"]).select("k", "v").collect()
    stored = {row.k: row.v for row in rows}
    assert len(stored) == len(rows), rows
    assert stored == expected["rows"], stored


def function(table, called, **arguments):
    return Function(called.__name__, inspect.getsource(called), str(table), arguments)


def committed(writer, records):
    """Run a writer to its signed, protected commit of so many records."""
    settlement = writer.run()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-6000:]
    metadata = settlement.commit.metadata
    assert metadata.extra["_airflow_identity"] == writer.identity
    assert '{"fact": "protected", ' in writer.log
    assert "Successfully resolved conflicts, if any" in writer.log
    assert metadata.records == records
    return settlement


def rows_are(stack, table, rows, kind=Writer):
    """Check a table's rows by a function that writes nothing."""
    job = function(table, checks_and_writes_nothing, expected={"table": str(table), "rows": rows})
    writer = kind(stack, table, job=job)
    assert writer.run().outcome is Outcome.NOTHING_WRITTEN, writer.log[-6000:]


def main_jar(hudi_version, folder):
    """Return a jar with a main class that writes, and one in the place of Hudi Streamer."""
    classes = compile_scala(JOBS / "written_by_main.scala", hudi_version)
    packed = shutil.make_archive(str(folder / "main"), "zip", classes)
    return str(Path(packed).rename(folder / "main.jar"))
