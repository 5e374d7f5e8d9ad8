"""A PySpark job that inserts rows into the partition of each day that it is given."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("days", nargs="+")
    parser.add_argument("--run", required=True, help="what the key of each row begins with")
    args = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    rows = [(f"{args.run} {day}", day, 1) for day in args.days]
    frame = spark.createDataFrame(rows, "id string, day string, ts long")
    options = {
        "hoodie.table.name": "daily",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": "insert",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    frame.write.format("hudi").options(**options).mode("append").save(args.table)


if __name__ == "__main__":
    main()
