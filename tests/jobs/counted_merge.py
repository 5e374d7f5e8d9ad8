"""A PySpark job that reads a counter, may pause, and writes it back plus one by MERGE."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
}
SESSION = {
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--gate", type=Path, help="make GATE.read after the read, and wait for GATE.go")
    parser.add_argument("--upsert", action="store_true", help="no MERGE: only serializable ones may run")
    args = parser.parse_args()
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for key, value in SESSION.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not Path(args.table, ".hoodie", "hoodie.properties").exists():
        upsert(spark, args.table, 0)
        return
    value = spark.read.format("hudi").load(args.table).first().v
    if args.gate:
        args.gate.with_suffix(".read").touch()
        while not args.gate.with_suffix(".go").exists():
            time.sleep(0.05)
    if args.upsert:
        upsert(spark, args.table, value + 1)
        return
    spark.sql(f"CREATE TABLE counted USING hudi LOCATION '{args.table}'")
    spark.sql(
        f"MERGE INTO counted AS t USING (SELECT 'counter' AS k, 'p' AS p, {value + 1}L AS v) AS s "
        "ON t.k = s.k WHEN MATCHED THEN UPDATE SET t.v = s.v"
    )


def upsert(spark: SparkSession, table: str, value: int) -> None:
    rows = spark.createDataFrame([("counter", "p", value)], "k string, p string, v long")
    rows.write.format("hudi").options(**OPTIONS).mode("append").save(table)


if __name__ == "__main__":
    main()
