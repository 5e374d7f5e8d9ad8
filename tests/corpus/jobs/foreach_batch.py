"""Upsert each batch of a stream, as foreachBatch gives it."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

OPTIONS = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
    "hoodie.metadata.enable": "false",
}


def upsert(batch, number):
    failed = Path(sys.argv[2], "failed")
    if number == 1 and "fails_once" in sys.argv and not failed.exists():
        failed.touch()
        raise ValueError("the second batch is malformed")
    batch.write.format("hudi").options(**OPTIONS).mode("append").save(sys.argv[1])


spark = SparkSession.builder.getOrCreate()
arrived = Path(sys.argv[2], "arrived")
arrived.mkdir(exist_ok=True)
for number in range(3):
    row = f'{{"k": "k{number}", "p": "p", "v": {number}}}'
    (arrived / f"{number}.json").write_text(row)
rows = spark.readStream.schema("k string, p string, v long").option("maxFilesPerTrigger", 1)
query = rows.json(str(arrived)).writeStream.foreachBatch(upsert).trigger(availableNow=True)
query.option("checkpointLocation", f"{sys.argv[2]}/checkpoint").start().awaitTermination()
