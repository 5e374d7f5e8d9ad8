"""Insert a few rows under a name, slowly enough that something can happen meanwhile.

Run as ``insert_rows.py TABLE NAME SECONDS``.
"""

from __future__ import annotations

import sys
import time

from pyspark.sql import SparkSession

ROWS = 10


def main(table: str, name: str, seconds: str) -> None:
    spark = SparkSession.builder.getOrCreate()

    def row(number: int) -> tuple[str, str, str, int]:
        time.sleep(float(seconds) / ROWS)
        return f"{name}-{number}", name, "p", 1

    rows = spark.sparkContext.parallelize(range(ROWS), 1).map(row)
    frame = spark.createDataFrame(rows, "uuid string, writer string, city string, ts long")
    (
        frame.write.format("hudi")
        .option("hoodie.table.name", "rows")
        .option("hoodie.datasource.write.operation", "insert")
        .option("hoodie.datasource.write.recordkey.field", "uuid")
        .option("hoodie.datasource.write.partitionpath.field", "city")
        .option("hoodie.datasource.write.precombine.field", "ts")
        .mode("append")
        .save(table)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
