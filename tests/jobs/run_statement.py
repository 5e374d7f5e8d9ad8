"""Runs a Spark SQL statement from an error of ours: the table is registered under its own name."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession


def main(_: str, table: str, statement: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sql(f"CREATE TABLE {Path(table).name} USING hudi LOCATION '{table}'")
    rows = spark.sql(statement).collect()
    assert all(row[0] for row in rows), rows


if __name__ == "__main__":
    main(*sys.argv[1:])
