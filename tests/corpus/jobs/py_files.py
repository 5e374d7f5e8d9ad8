"""Use a module of --py-files, in the driver and in a function of the rows."""

import sys

import trip_rules
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
pairs = trips.rdd.map(lambda row: (row.k, trip_rules.part_of(row.k), row.v))
trips = pairs.toDF("k string, p string, v long")
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
