"""Compute a column by a typed pandas_udf, whose pandas is imported in a function."""

import functools
import sys
import typing

from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf


def doubled():
    import pandas as pd

    @pandas_udf("long")
    def double(values: pd.Series) -> pd.Series:
        return values * 2

    return double


def label():
    class Trip(typing.NamedTuple):
        name: str

    @functools.singledispatch
    def name_of(value) -> str:
        return str(value)

    @name_of.register
    def _(value: Trip) -> str:
        return value.name

    assert typing.get_type_hints(Trip) == {"name": str}
    return name_of(Trip("trips"))


spark = SparkSession.builder.appName("trips").getOrCreate()
trips = spark.range(10).selectExpr("concat('k', id) AS k", "concat('p', id % 2) AS p", "id")
options = {
    "hoodie.table.name": label(),
    "hoodie.datasource.write.recordkey.field": "k",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "v",
    "hoodie.metadata.enable": "false",
}
trips = trips.select("k", "p", doubled()("id").alias("v"))
trips.write.format("hudi").options(**options).mode("append").save(sys.argv[1])
