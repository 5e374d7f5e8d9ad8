"""Print a gigabyte in lines of 16 KiB."""

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
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
line = "0" * 16383 + "\n"
for _ in range(65536):
    sys.stdout.write(line)
