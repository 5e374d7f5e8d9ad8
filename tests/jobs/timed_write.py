"""A PySpark job that upserts a few rows and records when its session was ready and its write done."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

ROWS = 20


def record(step: str) -> None:
    with Path(os.environ["BENCH_TIMES"]).open("a") as file:
        file.write(f"{step} {time.time():.6f}\n")


def main(table: str, options: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext  # noqa: B018 - the session is ready once its context is
    record("session_ready")
    rows = [(f"k{n}", n, time.time_ns(), "p") for n in range(ROWS)]
    frame = spark.createDataFrame(rows, "id string, value int, ts long, part string")
    frame.coalesce(1).write.format("hudi").options(**json.loads(options)).mode("append").save(table)
    record("written")


if __name__ == "__main__":
    main(*sys.argv[1:])
