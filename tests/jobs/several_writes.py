"""A PySpark job that commits more than once: a stream in batches, or two tables."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k string, p string, v int"


def write(frame: DataFrame, table: str) -> None:
    """Upsert rows by their key, so that a repeated write changes nothing."""
    options = {
        "hoodie.table.name": Path(table).name,
        "hoodie.datasource.write.recordkey.field": "k",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.precombine.field": "v",
        "hoodie.datasource.write.operation": "upsert",
    }
    frame.write.format("hudi").options(**options).mode("append").save(table)


def stream(spark: SparkSession, table: str, folder: Path) -> None:
    """Write what has arrived in a folder, one file in each batch; the second batch fails once."""

    def write_batch(frame: DataFrame, number: int) -> None:
        failed = folder / "failed"
        if number == 1 and not failed.exists():
            failed.touch()
            raise ValueError("the second batch fails")
        write(frame, table)

    arrived = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"{folder}/arrived")
    query = arrived.writeStream.foreachBatch(write_batch).trigger(availableNow=True)
    query.option("checkpointLocation", f"{folder}/checkpoint").start().awaitTermination()


def main(table: str, kind: str, folder: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    if kind == "stream":
        stream(spark, table, Path(folder))
        return
    for each in (table, f"{table}_too"):
        write(spark.createDataFrame([("k1", "a", 1)], SCHEMA), each)


if __name__ == "__main__":
    main(*sys.argv[1:])
