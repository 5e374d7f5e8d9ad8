"""A driver whose commits are guarded; it prints what became of each write as a line of JSON."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from airflow_occ_provider.in_driver import guard, run_job

PREFIX = "guarded: "
SOURCE = Path(guard.__file__).read_text()
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.operation": "insert",
    "hoodie.cleaner.policy.failed.writes": "LAZY",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.clean.automatic": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.insert.shuffle.parallelism": "1",
}


def say(**fields):
    print(PREFIX + json.dumps(fields), flush=True)


class Table:
    """A table of this driver, and its guard, which is installed anew."""

    def __init__(self, spark, url, options):
        self._spark, self._url, self._options = spark, url, options
        self._jvm = spark.sparkContext._jvm
        self.guard, why = run_job.program("guard", SOURCE).installed(
            self._jvm, [url], spark.sparkContext._jsc.hadoopConfiguration()
        )
        assert self.guard, why

    def completed(self):
        """The requested times of the writes that the storage shows as completed."""
        times = set()
        for folder in (".hoodie", ".hoodie/timeline"):
            path = self._jvm.org.apache.hadoop.fs.Path(f"{self._url}/{folder}")
            files = path.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())
            if not files.exists(path):
                continue
            for status in files.listStatus(path):
                time, _, action = status.getPath().getName().partition(".")
                if time.replace("_", "").isdigit() and action in ("commit", "deltacommit"):
                    times.add(time.partition("_")[0])
        return sorted(times)

    def write(self, case):
        before, error = self.completed(), ""
        rows = self._spark.range(3).selectExpr("cast(id as string) id", "'p' p", "1 ts")
        try:
            rows.write.format("hudi").options(**self._options).mode("append").save(self._url)
        except Exception as failure:  # noqa: BLE001 - of Java
            causes = run_job.causes_of(failure)
            error = next((c["message"] for c in causes if "airflow_occ" in c["message"]), str(failure))
        new = [time for time in self.completed() if time not in before]
        is_closed, passing, committed = self.guard.state()
        say(case=case, new=new, error=error, closed=is_closed, passing=passing, committed=committed)


def write_cases(spark, url, options):
    table = Table(spark, url, options)
    table.write("open")
    table.guard.close()
    table.write("closed")
    table = Table(spark, url, options)
    table.guard.extend(lambda: 0.0, 0.0)
    table.guard.extend(lambda: 3600.0, 0.0)  # a life that is over stays over
    table.write("over")


def other_cases(spark, url, options):
    table = Table(spark, url, options)
    table.guard.extend(lambda: 60.0, 3600.0)
    table.write("margin")
    table = Table(spark, url, options)
    table.guard.extend(lambda: 3600.0, float("inf"), 3600.0)
    threading.Timer(3.0, table.guard.extend, (lambda: 3600.0, 30.0, 3600.0)).start()
    table.write("answered")
    table = Table(spark, url, options)
    table.guard.extend(lambda: 60.0, 3600.0)
    assert table.guard.check_log_too() is None
    table.write("log")


def answer_cases(spark, url):
    """A commit that has begun when the guard is closed; and the ways around the cache."""
    jvm, configuration = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
    guard = Table(spark, url, {}).guard
    path = jvm.org.apache.hadoop.fs.Path(f"{url}/.hoodie/5.commit")
    stream = path.getFileSystem(configuration).create(path)
    guard.close()
    during, error = guard.state(), ""
    try:
        stream.close()
    except Exception as failure:  # noqa: BLE001 - of Java
        error = run_job.causes_of(failure)[-1]["message"]
    shown = path.getFileSystem(configuration).exists(path)
    say(case="begun", during=during, error=error, shown=shown, after=guard.state())
    guard = Table(spark, url, {}).guard
    files, absent = path.getFileSystem(configuration), jvm.org.apache.hadoop.fs.Path(f"{url}/absent/a")
    try:
        is_renamed = files.rename(absent, path)
    except Exception:  # noqa: BLE001 - of Java
        is_renamed = None
    say(case="unanswered", renamed=is_renamed, after=guard.state())
    scheme = path.toUri().getScheme()
    configuration.set(f"fs.{scheme}.impl.disable.cache", "true")
    uncached = guard.prove()
    configuration.set(f"fs.{scheme}.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    say(case="ways", uncached=uncached, other=guard.prove(), missing=unknown_scheme(jvm, configuration))


def unknown_scheme(jvm, configuration):
    return run_job.program("guard", SOURCE).installed(jvm, ["none://a/t"], configuration)[1]


def main(url, cells):
    SparkContext._ensure_initialized()
    # As in a runner: before the job's session, which may still configure the file systems.
    assert run_job.unguarded(SparkContext._jvm, {"program": SOURCE, "tables": [url]}) is None
    spark = SparkSession.builder.getOrCreate()
    tables = {f"{url}/{number}": {**OPTIONS, **cell} for number, cell in enumerate(json.loads(cells))}
    for table, options in tables.items():
        write_cases(spark, table, options)
    other_cases(spark, *next(iter(tables.items())))
    answer_cases(spark, f"{url}/begun")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
