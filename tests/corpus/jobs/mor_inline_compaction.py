"""Upsert a merge-on-read table twice, with inline compaction."""

import sys

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
options["hoodie.datasource.write.table.type"] = "MERGE_ON_READ"
options["hoodie.compact.inline"] = "true"
options["hoodie.compact.inline.max.delta.commits"] = "2"
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
more = trips.selectExpr("k", "p", "v + 1 AS v")
more.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
