"""A PySpark job that makes the table which the writers find: one file of many rows in each partition."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

BASE = "base-"


def main(table, partitions, rows, options):
    spark = SparkSession.builder.getOrCreate()
    count, number = len(partitions.split(",")), sql.col("id")
    frame = spark.range(count * int(rows)).select(
        sql.concat(sql.lit(BASE), "id").alias("id"),
        sql.element_at(sql.split(sql.lit(partitions), ","), (number % count + 1).cast("int")).alias("p"),
        sql.sha1(number.cast("string")).alias("payload"),
        sql.lit(0).cast("long").alias("ts"),
    )
    frame.write.format("hudi").options(**json.loads(options)).mode("append").save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
