"""Delete some keys, then upsert others."""

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
old = trips.where("v < 3").write.format("hudi").options(**options).mode("append")
old.option("hoodie.datasource.write.operation", "delete").save(sys.argv[1])
new = trips.where("v > 6").selectExpr("k", "p", "v + 100 AS v")
new.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
