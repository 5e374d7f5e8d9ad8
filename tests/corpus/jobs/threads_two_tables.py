"""Write two tables at once, by two threads."""

import sys
from concurrent.futures import ThreadPoolExecutor

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


def save(table):
    trips.write.format("hudi").options(**options).mode("append").save(table)


with ThreadPoolExecutor(2) as pool:
    list(pool.map(save, [sys.argv[1], f"{sys.argv[1]}_too"]))
