"""A PySpark job that computes a few rows for a while, and adds them to files that have many.

Pauses stand for the executors of a cluster, so that writers side by side do not compete for the cores of
one machine. The first pause is in the source, before Hudi knows the profile of the write. The second one
is a check before the commit: the new files are written and have their markers, and Hudi has not looked
for conflicts yet. So for all rivals the write is under way.
"""

from __future__ import annotations

import json
import sys
import time

ROWS = 5
SHARE_BEFORE = 0.25  # of the pause, before the profile
WRITE_BEGINS = "conflict bench: the write begins"
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

_CHECK = "hoodie.precommit.validators"
_CHECK_CLASS = "org.apache.hudi.client.validator.SqlQuerySingleResultPreCommitValidator"


def own_keys(writer: str, partition: str) -> list[str]:
    """Return the keys that a writer adds to a partition."""
    return [f"{writer}-{partition}-{number}" for number in range(ROWS)]


def writer_of(key: str) -> str:
    """Return the writer that added a key."""
    return key.rsplit("-", 2)[0]


def pauses(pause_s: float) -> tuple[float, float]:
    """Return the seconds before the profile, and those while the files are written."""
    return pause_s * SHARE_BEFORE, pause_s * (1 - SHARE_BEFORE)


def checks_for(seconds: float) -> dict[str, str]:
    """Return options with which Hudi checks the new files for so long, before it commits them."""
    sleeps = f"select java_method('java.lang.Thread', 'sleep', {round(seconds * 1000)}L)"
    return {_CHECK: _CHECK_CLASS, f"{_CHECK}.single.value.sql.queries": f"{sleeps}#null"}


def main(table, writer, partitions, pause_s, options="{}"):
    from pyspark.sql import SparkSession  # the benchmark reads the keys without Spark

    spark = SparkSession.builder.getOrCreate()
    keys = [(key, p) for p in partitions.split(",") for key in own_keys(writer, p)]
    before_s, after_s = pauses(float(pause_s))
    # In the place of executors that read, join and sort for so long.
    computed = f"java_method('java.lang.Thread', 'sleep', {round(before_s * 1000 / len(keys))}L)"
    frame = (
        spark.createDataFrame(keys, "id string, p string")
        .coalesce(1)
        .selectExpr(
            "id",
            "p",
            f"'{writer}' as payload",
            f"coalesce(cast({computed} as long), {time.time_ns()}L) as ts",
        )
    )
    print(WRITE_BEGINS, flush=True)
    given = {**OPTIONS, **checks_for(after_s), **json.loads(options)}
    frame.write.format("hudi").options(**given).mode("append").save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
