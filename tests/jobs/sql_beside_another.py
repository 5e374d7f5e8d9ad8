"""Runs SQL in a session whose catalog has the table's name at another place."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from airflow_occ_provider.in_driver import run_sql


def main(table: str, other: str) -> None:
    SparkSession.builder.getOrCreate().sql(f"CREATE TABLE t USING hudi LOCATION '{other}'")
    run_sql.main(table, "t", "`t`", "UPDATE t SET v = 0")


if __name__ == "__main__":
    main(*sys.argv[1:])
