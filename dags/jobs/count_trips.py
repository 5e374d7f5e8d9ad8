"""Print how many trips of each writer a Hudi table holds, as one JSON line."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("count trips").getOrCreate()
trips = spark.read.format("hudi").load(sys.argv[1])
counts = {row["writer"]: row["count"] for row in trips.groupBy("writer").count().collect()}
distinct = trips.select("uuid").distinct().count()
print(json.dumps({"counts": counts, "distinct": distinct}))
