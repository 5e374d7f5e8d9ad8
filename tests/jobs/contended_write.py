"""A PySpark job that updates the one row that all writers update, and adds one row of its own.

It takes its time as a check of the new files, between the profile of the write and its commit.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

_CHECK = "hoodie.precommit.validators"
_CHECK_CLASS = "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"


def main(table: str, writer: str, seconds: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    rows = [("first", "first", time.time_ns()), (writer, "first", time.time_ns())]
    sleeps = f"select java_method('java.lang.Thread', 'sleep', {seconds}000L)"
    options = {
        "hoodie.table.name": Path(table).name,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.metadata.enable": "false",
        _CHECK: _CHECK_CLASS,
        f"{_CHECK}.single.value.sql.queries": f"{sleeps}#null",
    }
    frame = spark.createDataFrame(rows, "id string, p string, ts long")
    frame.write.format("hudi").options(**options).mode("append").save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
