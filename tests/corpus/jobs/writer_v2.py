"""Create the table, with rows, by DataFrameWriterV2."""

import os
import sys

from pyspark.sql import SparkSession

extensions = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
catalog = "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
folder, name = os.path.split(sys.argv[1])
builder = SparkSession.builder.config("spark.sql.extensions", extensions)
builder = builder.config("spark.sql.warehouse.dir", folder)
spark = builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()
columns = ("concat('k', id) AS k", "id AS v", "concat('p', id % 2) AS p")
writer = spark.range(10).selectExpr(*columns).writeTo(name).using("hudi")
writer.tableProperty("primaryKey", "k").tableProperty("preCombineField", "v").create()
