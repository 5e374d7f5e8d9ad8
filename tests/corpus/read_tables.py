"""Reads tables by Spark, as the file says that is named first; writes their rows to the second."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
rows = {}
for table in json.loads(Path(sys.argv[1]).read_text()):
    frame = spark.read.format("hudi").load(table)
    names = sorted(name for name in frame.columns if not name.startswith("_hoodie_"))
    rows[table] = sorted(list(map(str, row)) for row in frame.select(*names).collect())
Path(sys.argv[2]).write_text(json.dumps(rows))
