"""Makes tables with one commit of one row in a partition of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(_: str, *tables: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    row = spark.createDataFrame([("first", "first", 1)], "id string, p string, ts long")
    for table in tables:
        options = {
            "hoodie.table.name": Path(table).name,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.operation": "insert",
        }
        row.write.format("hudi").options(**options).mode("append").save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
