"""A PySpark job that computes a few rows for a while, and adds them to files that have many."""

from __future__ import annotations

import json
import sys
import time

ROWS = 5
WRITE_BEGINS = "conflict bench: the write begins"
SCHEMA = "id string, p string, payload string, ts long"
OPTIONS = {
    "hoodie.table.name": "bench",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    # New rows go into the partition's small file, which is written anew: two writers of it conflict.
    "hoodie.datasource.write.operation": "insert",
    "hoodie.metadata.enable": "false",  # a quarter of what a driver costs
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.finalize.write.parallelism": "1",
}


def own_keys(writer: str, partition: str) -> list[str]:
    """Return the keys that a writer adds to a partition."""
    return [f"{writer}-{partition}-{number}" for number in range(ROWS)]


def writer_of(key: str) -> str:
    """Return the writer that added a key."""
    return key.rsplit("-", 2)[0]


def main(table, writer, partitions, pause_s, options="{}"):
    from pyspark.sql import SparkSession  # the benchmark reads the keys without Spark

    spark = SparkSession.builder.getOrCreate()
    keys = [(key, p) for p in partitions.split(",") for key in own_keys(writer, p)]
    wait_s, now = float(pause_s), time.time_ns()

    def computed(some):
        """In the place of executors that read, join and sort for so long."""
        time.sleep(wait_s)
        return [(key, p, writer, now) for key, p in some]

    rows = spark.sparkContext.parallelize(keys, 1).mapPartitions(computed)
    frame = spark.createDataFrame(rows, SCHEMA)
    print(WRITE_BEGINS, flush=True)
    frame.write.format("hudi").options(**OPTIONS, **json.loads(options)).mode("append").save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
