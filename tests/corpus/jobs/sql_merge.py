"""MERGE changes into the table by spark.sql."""

import sys

from pyspark.sql import SparkSession

extensions = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
catalog = "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
builder = SparkSession.builder.config("spark.sql.extensions", extensions)
spark = builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()
spark.sql(f"CREATE TABLE IF NOT EXISTS trips USING hudi LOCATION '{sys.argv[1]}'")
changes = spark.range(8, 12).selectExpr("concat('k', id) AS k", "concat('p', id % 2) AS p", "id AS v")
changes.createOrReplaceTempView("changes")
spark.sql("""
    MERGE INTO trips AS t USING changes AS c ON t.k = c.k
    WHEN MATCHED THEN UPDATE SET t.v = t.v + c.v
    WHEN NOT MATCHED THEN INSERT *
""")
