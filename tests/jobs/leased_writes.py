"""A driver that makes one write for each command, each by a life and a guard of its own.

A command is a file of JSON in a folder. Without a life, no commit is refused: the control.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from airflow_occ_provider.driver.contract import FACTS, Life
from airflow_occ_provider.in_driver import granted, guard, run_job
from airflow_occ_provider.in_driver.folder import HadoopFolder, LocalFolder, is_local
from airflow_occ_provider.in_driver.report import Report
from tests.jobs.guarded_writes import OPTIONS

STEP_S = 0.01
WINDOWS = 100


def follow(context, folder, ttl_s, commits_guard):
    """Start what a granted driver runs beside its job, and return it."""
    configuration = run_job.hadoop_configuration(context._jvm)
    remote = None if is_local(folder) else HadoopFolder(context._jvm, configuration, folder)
    files = remote or LocalFolder(folder)

    def say(fact, **details):
        report.add(json.dumps({"fact": fact, **details}).encode() + b"\n")

    report = Report(lambda content: files.write(FACTS, content), say)
    life = Life.begin(ttl_s, granted.moment())
    # A life that is over closes the guard; this process goes on with the next command.
    kill = threading.Event().set
    driver = granted.GrantedDriver(files, "n", life, report, say=say, kill=kill)
    driver.start()
    driver.guarded(commits_guard)
    return driver, report


def window(context, table):
    """Return how long the guard and the storage take to show a completed instant, many times.

    It is shown by a rename where Hudi renames, and elsewhere by the close of its stream.
    """
    configuration = context._jsc.hadoopConfiguration()
    files = context._jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getFs(table, configuration)
    renames, seconds = files.getUri().getScheme() in ("file", "hdfs"), []
    for number in range(WINDOWS):
        path = context._jvm.org.apache.hadoop.fs.Path(f"{table}_/.hoodie/timeline/{number}_1.commit")
        stream = files.create(path.suffix(".part") if renames else path)
        stream.write(bytes(2000))
        if renames:
            stream.close()
        begun = time.perf_counter()
        assert files.rename(path.suffix(".part"), path) if renames else stream.close() is None
        seconds.append(time.perf_counter() - begun)
    return seconds


def obey(spark, number, command, begun):
    """Make one write, and return why it failed, if it did."""
    context = spark.sparkContext
    installed, why = guard.installed(
        context._jvm, [command["table"]], context._jsc.hadoopConfiguration()
    )
    assert installed, why
    has_life, folder, ttl_s = command["has_life"], command["folder"], command["ttl_s"]
    followed = follow(context, folder, ttl_s, installed) if has_life else None
    rows = spark.range(3).selectExpr(f"cast(id + {number} * 10 as string) id", "'p' p", "1 ts")
    options = {**OPTIONS, "hoodie.metadata.enable": "false"}
    begun.touch()
    time.sleep(command["pause_s"])
    began, error = time.monotonic(), ""
    try:
        rows.write.format("hudi").options(**options).mode("append").save(command["table"])
    except Exception as failure:  # noqa: BLE001 - of Java
        causes = run_job.causes_of(failure)
        error = next((c["message"] for c in causes if "airflow_occ" in c["message"]), str(failure))
    seconds = time.monotonic() - began
    if followed:
        driver, report = followed
        driver._ending.acquire(blocking=False)  # its threads end
        report.close(1)
    measured = window(context, command["table"]) if number == 0 else []
    return {"error": error, "seconds": seconds, "window": measured}


def main(folder):
    """Obey the commands of a folder until it has a file ``end``."""
    commands, number = Path(folder), 0
    spark = SparkSession.builder.getOrCreate()
    pids = {"python": os.getpid(), "jvm": run_job.process_of(SparkContext._jvm)}
    write(commands / "pids", pids)
    while not (commands / "end").exists():
        with contextlib.suppress(FileNotFoundError):
            command = json.loads((commands / f"{number}.command").read_text())
            begun = commands / f"{number}.begun"
            write(commands / f"{number}.result", obey(spark, number, command, begun))
            number += 1
        time.sleep(STEP_S)


def write(path, content):
    """Write a file of JSON, which is whole once it is there."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
