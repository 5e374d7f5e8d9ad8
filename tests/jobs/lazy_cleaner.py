"""A long-lived PySpark job that runs one lazy clean, or one statement, for each file it is given."""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_occ_provider.in_driver import clean as clean_job

PATIENCE_S = 300


def serve(spark, wanted):
    if "sql" in wanted:
        return [row.asDict() for row in spark.sql(wanted["sql"]).collect()]
    if "count" in wanted:
        rows = spark.read.format("hudi").load(wanted["count"]).groupBy("id").count().collect()
        return {row["id"]: row["count"] for row in rows}
    return clean_job.main(wanted["clean"])


def main(_, orders):
    spark = SparkSession.builder.getOrCreate()
    folder, deadline = Path(orders), time.monotonic() + PATIENCE_S
    Path(folder, "ready").touch()
    while time.monotonic() < deadline and not Path(folder, "stop").exists():
        for order in sorted(folder.glob("*.order")):
            answer = {"answer": None, "error": None}
            try:
                answer["answer"] = serve(spark, json.loads(order.read_text()))
            except Exception:  # noqa: BLE001 - reported to the test
                answer["error"] = traceback.format_exc()
            order.unlink()
            draft = order.with_suffix(".draft")
            draft.write_text(json.dumps(answer), encoding="utf-8")
            draft.rename(order.with_suffix(".answer"))
        time.sleep(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
