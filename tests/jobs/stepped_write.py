"""A PySpark job that inserts rows and can be held, or fail, before, in and after its write.

It inserts: rows that are committed twice are there twice.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from pyspark.sql import SparkSession

GATE_TIMEOUT_S = 600


def pass_step(gate: str, step: str) -> None:
    """Report that a step is reached, and wait until it is released; fail once if the test asks."""
    Path(gate, f"{step}.reached").touch()
    deadline = time.monotonic() + GATE_TIMEOUT_S
    while Path(gate, f"{step}.hold").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{step} was held for {GATE_TIMEOUT_S} s")
        time.sleep(0.05)
    if Path(gate, f"{step}.fail").exists():
        Path(gate, f"{step}.fail").unlink()
        raise ValueError(f"the job fails {step} its write")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--gate", required=True)
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--key", default="", help="what the keys of the rows begin with")
    parser.add_argument("--note", help="anything: it only makes the arguments differ")
    args = parser.parse_args()
    gate, key, table = args.gate, args.key, Path(args.table)
    spark = SparkSession.builder.getOrCreate()
    pass_step(gate, f"{key}before")

    def row(number: int) -> tuple[str, str, int]:
        pass_step(gate, f"{key}rows")
        return f"{key}{number}", str(number % 2), 1

    rows = spark.sparkContext.parallelize(range(args.rows), 2).map(row)
    options = {
        "hoodie.table.name": table.name,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.operation": "insert",
    }
    frame = spark.createDataFrame(rows, "id string, p string, ts long")
    frame.write.format("hudi").options(**options).mode("append").save(args.table)
    pass_step(gate, f"{key}after")


if __name__ == "__main__":
    main()
