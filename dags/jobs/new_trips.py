"""Print how many trips of each city are new: a PySpark job of ``HudiIncrementalReadOperator``."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("new trips").getOrCreate()
window = json.loads(spark.conf.get("spark.hudi.window"))
rows = spark.read.format("hudi").options(**window["options"]).load(window["table"])
new = rows.where(window["predicate"]).groupBy("city").count().collect()
print(f"new trips: {json.dumps({row['city']: row['count'] for row in new})}")
