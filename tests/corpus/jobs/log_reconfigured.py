"""Have log4j read its configuration five times a second while the write runs."""

import sys
import threading

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
context = spark._jvm.org.apache.logging.log4j.LogManager.getContext(False)
ended = threading.Event()


def reconfigure():
    while not ended.wait(0.2):
        context.reconfigure()


threading.Thread(target=reconfigure, daemon=True).start()
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
ended.set()
