"""Leave a helper process behind, which keeps the job's output open."""

import subprocess
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
subprocess.Popen(["sleep", "300"], start_new_session=True)
