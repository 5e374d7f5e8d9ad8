"""Upsert with a lock of the job's own."""

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
options["hoodie.write.concurrency.mode"] = "optimistic_concurrency_control"
options["hoodie.clean.failed.writes.policy"] = "LAZY"
provider = "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
options["hoodie.write.lock.provider"] = provider
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
