"""A PySpark job that signs two earlier commits for each writer of a round, as of its last runs."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

SCHEMA = "id string, p string, payload string, ts long"


def main(table, writes, options):
    """Update one row of each partition that a writer touches.

    :param writes: pairs of the rows, each an ID and a partition, and the options that sign their commit.
    """
    spark = SparkSession.builder.getOrCreate()
    for rows, signature in json.loads(writes):
        frame = spark.createDataFrame([(key, p, "earlier", 1) for key, p in rows], SCHEMA)
        given = {**json.loads(options), **signature}
        frame.write.format("hudi").options(**given).mode("append").save(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
