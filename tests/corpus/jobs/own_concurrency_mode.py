"""Upsert with Hudi's default concurrency mode, named by hand."""

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
options["hoodie.write.concurrency.mode"] = "single_writer"
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
