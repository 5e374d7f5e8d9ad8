"""A PySpark job that writes nothing, prints, and has Hudi's loggers report."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

LOGGER = "org.apache.hudi.common.table.timeline.Printing"
REPORTED = "reported at "
MARK = b"printed "
LINE = MARK + b"x" * (99 - len(MARK)) + b"\n"
PERIOD_S = 0.3
_LINES = 5000
_PIECE = LINE * _LINES


def record(step: str, *values: float) -> None:
    """Record a step and its time."""
    with Path(os.environ["BENCH_TIMES"]).open("a") as file:
        file.write(" ".join([step, *(f"{value:.6f}" for value in (time.time(), *values))]) + "\n")


def print_for(seconds: float, megabytes_per_s: float) -> None:
    """Print at a rate, as far as what takes the output keeps up; record how much it was."""
    began = time.monotonic()
    printed, last = 0, began + seconds
    while (now := time.monotonic()) < began + seconds:
        if printed < (now - began) * megabytes_per_s * 1e6:
            sys.stdout.buffer.write(_PIECE)
            printed, last = printed + len(_PIECE), time.monotonic()
        else:
            time.sleep(0.005)
    sys.stdout.flush()
    record("printed", printed / 1e6, last - began)


def report(spark: SparkSession, has_ended: threading.Event, period_s: float) -> None:
    """Have one of Hudi's loggers say the time, again and again."""
    logger = spark._jvm.org.slf4j.LoggerFactory.getLogger(LOGGER)
    while not has_ended.wait(period_s):
        line = f"{REPORTED}{time.time():.6f}"
        logger.info(line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("seconds", type=float)
    parser.add_argument("megabytes_per_s", type=float)
    parser.add_argument("--every", type=float, default=PERIOD_S, help="seconds from report to report")
    parser.add_argument("--bare", action="store_true", help="without Spark")
    arguments = parser.parse_args()
    has_ended = threading.Event()
    if not arguments.bare:
        spark = SparkSession.builder.getOrCreate()
        spark.sparkContext  # noqa: B018 - the session is ready once its context is
        threading.Thread(target=report, args=(spark, has_ended, arguments.every), daemon=True).start()
    record("begun")
    print_for(arguments.seconds, arguments.megabytes_per_s)
    has_ended.set()


if __name__ == "__main__":
    main()
