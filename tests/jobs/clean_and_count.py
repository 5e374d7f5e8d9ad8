"""Cleans tables as any protected writer does, and counts how often each row is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.append(str(Path(__file__).parents[2]))  # Spark's Python need not have the package
from airflow_occ_provider.in_driver import clean as clean_job


def main(_: str, answer: str, *tables: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    told = {}
    for table in tables:
        clean_job.main(table)
        rows = spark.read.format("hudi").load(table).groupBy("id").count().collect()
        told[table] = {row["id"]: row["count"] for row in rows}
    Path(answer).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
