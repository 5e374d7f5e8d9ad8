"""Upsert two tables; between them, the job fails once if it is told to."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("trips").getOrCreate()
trips = spark.range(10).selectExpr("concat('k', id) AS k", "concat('p', id % 2) AS p", "id AS v")
options = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
    "hoodie.metadata.enable": "false",
}
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
failed = Path(sys.argv[2], "failed")
if "fails_once" in sys.argv and not failed.exists():
    failed.touch()
    raise ValueError("no counts today")
counts = trips.groupBy("p").count().selectExpr("p AS k", "p", "count AS v")
counts.write.format("hudi").options(**options).mode("append").save(f"{sys.argv[1]}_counts")
