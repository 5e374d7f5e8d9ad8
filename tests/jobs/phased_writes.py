"""A PySpark job that makes four tables, then stops in each of them in another phase of a write.

Its class path holds the latches of the differential test. All tables have the same name, and so the
same commit lock: the writer that has just completed keeps it, and another one waits for it after
its markers are made.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

PATIENCE_S = 240
LATCHED = {"inflight": "inflight", "markers": "inflight", "completed": "completed"}
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.index.type": "SIMPLE",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.simple.index.parallelism": "1",
    "hoodie.clean.automatic": "false",
    "hoodie.time.generator.max_expected_clock_skew_ms": "1",
}


def save(spark, table, rows):
    frame = spark.createDataFrame(rows, "id string, p string, ts long")
    frame.write.format("hudi").options(**OPTIONS).mode("append").save(str(table))


class Writer:
    """Writes half of the old rows again, and as many new ones, up to the table's phase."""

    def __init__(self, spark, table, gate):
        self.spark, self.table, self.phase = spark, table, table.name
        self.latches = spark._jvm.differential.Latches
        self.latch = self.latches.create(str(table), PATIENCE_S * 1000)
        self.reached = Path(gate, f"{self.phase}.reached")
        self.thread = threading.Thread(target=self.write)

    def run_to_phase(self):
        """Start the write, and return when it is stopped in its phase."""
        self.latch.send(LATCHED.get(self.phase, ""))
        self.thread.start()
        if self.phase in LATCHED and self.latch.arrive(LATCHED[self.phase]) == "reached":
            self.reached.touch()
        deadline = time.monotonic() + PATIENCE_S
        while not self.reached.exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def write(self):
        reached, is_stopped = str(self.reached), self.phase not in LATCHED

        def row(number):
            if is_stopped:  # its rows are first asked for when the instant is requested
                Path(reached).touch()
                time.sleep(PATIENCE_S)
            return str(number), str(number % 2), 2

        self.latches.enter(self.latch)
        save(self.spark, self.table, self.spark.sparkContext.parallelize(range(10, 30), 1).map(row))


def main(first, gate, *others):
    spark = SparkSession.builder.getOrCreate()
    save(spark, first, [(str(number), str(number % 2), 1) for number in range(20)])
    for table in others:
        shutil.copytree(first, table)
    writers = {Path(table).name: Writer(spark, Path(table), gate) for table in (first, *others)}
    for writer in writers.values():
        writer.run_to_phase()
    writers["markers"].latch.send("")
    for writer in writers.values():
        writer.thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
