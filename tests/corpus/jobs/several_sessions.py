"""Write in a second session, and again after Spark was stopped and started."""

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
beside = spark.newSession()
beside.conf.set("spark.sql.shuffle.partitions", "3")
rows = beside.range(5).selectExpr("concat('k', id) AS k", "'p0' AS p", "id AS v")
rows.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
spark.stop()
spark = SparkSession.builder.appName("again").config("spark.sql.shuffle.partitions", "1").getOrCreate()
rows = spark.range(5, 7).selectExpr("concat('k', id) AS k", "'p0' AS p", "id AS v")
rows.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
spark.stop()
