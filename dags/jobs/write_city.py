"""Write the trips of one city: an ordinary PySpark job of one partition."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

TRIPS = 50


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", required=True)
    parser.add_argument("--city", required=True)
    parser.add_argument("--type", default="COPY_ON_WRITE", choices=("COPY_ON_WRITE", "MERGE_ON_READ"))
    args = parser.parse_args()

    spark = SparkSession.builder.getOrCreate()
    rows = [(f"{args.city}-{number}", args.city, 1) for number in range(TRIPS)]
    (
        spark.createDataFrame(rows, "uuid string, city string, ts long")
        .write.format("hudi")
        .option("hoodie.table.name", "trips")
        .option("hoodie.datasource.write.table.type", args.type)
        .option("hoodie.datasource.write.operation", "upsert")
        .option("hoodie.datasource.write.recordkey.field", "uuid")
        .option("hoodie.datasource.write.partitionpath.field", "city")
        .option("hoodie.datasource.write.precombine.field", "ts")
        .mode("append")
        .save(args.table)
    )
    print(f"wrote {TRIPS} trips of {args.city}")


if __name__ == "__main__":
    main()
