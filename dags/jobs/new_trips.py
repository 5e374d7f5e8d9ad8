"""Copy the trips that are new: a PySpark job of ``HudiIncrementalReadOperator``."""

from __future__ import annotations

import argparse
import json

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
parser.add_argument("--target", required=True, help="folder that takes a folder of each window")
args = parser.parse_args()

spark = SparkSession.builder.appName("new trips").getOrCreate()
window = json.loads(spark.conf.get("spark.hudi.window"))
rows = spark.read.format("hudi").options(**window["options"]).load(window["table"])
new = rows.where(window["predicate"])
# A retry reads the same window, and overwrites what the try before it has written.
new.write.mode("overwrite").parquet(f"{args.target}/{window['end']}")
counts = {row["city"]: row["count"] for row in new.groupBy("city").count().collect()}
print(f"new trips: {json.dumps(counts)}")
