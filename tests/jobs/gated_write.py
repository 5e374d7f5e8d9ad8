"""A PySpark job that upserts rows and can be held at a gate, for tests of concurrent writers."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

GATE_TIMEOUT_S = 600


def pass_gate(gate: str, writer: str) -> None:
    """Report that the write has begun, and wait until the test opens the gate."""
    Path(gate, f"{writer}.begun").touch()
    deadline = time.monotonic() + GATE_TIMEOUT_S
    while not Path(gate, f"{writer}.go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{writer} was not let through in {GATE_TIMEOUT_S} s")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("table")
    parser.add_argument("--writer", default="w")
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--prefix", default="", help="what each key begins with")
    parser.add_argument("--partition", default=None, help="one partition for all rows")
    parser.add_argument("--partitions", type=int, default=2, help="how many get the rows")
    parser.add_argument("--also", help="another table, written first")
    parser.add_argument("--each", action="append", default=[], help="an option of one more write")
    parser.add_argument("--gate", help="folder of the gate; it also has the drivers that ran the job")
    parser.add_argument("--gate-from", type=int, default=0, help="the first row that waits at it")
    parser.add_argument("--log-level")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--jvm-option", action="append", default=[], help="set past PySpark's classes")
    parser.add_argument("--catch", choices=("ignore", "raise", "exit", "print"))
    parser.add_argument("--write-nothing", action="store_true")
    args = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    if args.log_level:
        spark.sparkContext.setLogLevel(args.log_level)
    if args.gate:
        with Path(args.gate, f"{args.writer}.drivers").open("a") as drivers:
            drivers.write(f"{spark.sparkContext.applicationId}\n")
    if args.write_nothing:
        print("nothing to write today")
        return
    try:
        if args.also:
            write(spark, argparse.Namespace(**{**vars(args), "table": args.also}))
        write(spark, args)
        for number, option in enumerate(args.each):
            beside = {"table": f"{args.table}-{number}", "option": [*args.option, option]}
            write(spark, argparse.Namespace(**{**vars(args), **beside}))
    except Exception as error:
        if not args.catch:
            raise
        traceback.print_exc()
        print(f"the write failed: {type(error).__name__}")
        if args.catch == "raise":
            raise ValueError(
                "giving up after org.apache.hudi.exception.HoodieWriteConflictException"
            ) from None
        if args.catch == "exit":
            sys.exit(3)
    print("the job goes on")


def write(spark: SparkSession, args: argparse.Namespace) -> None:
    gate, name, partition, count = args.gate, args.writer, args.partition, args.partitions
    first, prefix = args.gate_from, args.prefix

    def row(number: int) -> tuple[str, str, str, int]:
        if gate and number >= first:
            pass_gate(gate, name)
        return f"{prefix}{number}", name, partition or str(number % count), 1

    rows = spark.sparkContext.parallelize(range(args.rows), 2).map(row)
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.precombine.field": "ts",
        **dict(option.split("=", 1) for option in args.option),
    }
    table = spark.createDataFrame(rows, "id string, who string, p string, ts long")
    writer = table.write.format("hudi").options(**options).mode("append")
    for option in args.jvm_option:
        writer._jwrite.option(*option.split("=", 1))
    writer.save(args.table)


if __name__ == "__main__":
    main()
