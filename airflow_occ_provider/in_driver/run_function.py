"""A PySpark job of this provider: calls a function and writes what it returns.

Run through ``run_job.py`` as ``run_function.py TABLE NAME SOURCE CALL``: CALL contains the arguments,
pickled and in base64. A DataFrame that the function returns is upserted. It imports the standard
library and PySpark only.
"""

from __future__ import annotations
import __future__

import base64
import pickle
import sys

OPERATION = "hoodie.datasource.write.operation"
DESCRIBES_A_WRITE = ("hoodie.table.", "hoodie.datasource.write.")
# A writer's option, and where the table's own properties have it.
OF_TABLE = {
    "hoodie.table.name": ("hoodie.table.name",),
    "hoodie.datasource.write.recordkey.field": ("hoodie.table.recordkey.fields",),
    "hoodie.datasource.write.precombine.field": (
        "hoodie.table.ordering.fields",
        "hoodie.table.precombine.field",
    ),
    "hoodie.datasource.write.partitionpath.field": ("hoodie.table.partition.fields",),
}


def main(table, name, source, call):
    """Call the function with a session, and write what it returns."""
    from pyspark.sql import DataFrame, SparkSession

    spark = SparkSession.builder.getOrCreate()
    arguments = pickle.loads(base64.b64decode(call))
    returned = defined(name, source)(**arguments, spark=spark)
    if isinstance(returned, DataFrame):
        write(spark, table, returned)
    elif returned is not None:
        raise TypeError(f"{name} returned a {type(returned).__name__}: return a DataFrame, or None")


def defined(name, source):
    """Return the function that a source text defines; annotations are not evaluated."""
    flags = __future__.annotations.compiler_flag
    space = {"__name__": "__main__"}
    exec(compile(source, f"<{name}>", "exec", flags=flags, dont_inherit=True), space)
    return space[name]


def write(spark, table, frame):
    """Upsert the rows, by the table's own name, key, ordering field and partitioning."""
    properties = spark._jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    # Of a new table, Hudi derives the partitioning from the write's own options alone (1.2.0).
    of_write = {
        key: properties.getProperty(key)
        for key in properties.stringPropertyNames()
        if key.startswith(DESCRIBES_A_WRITE)
    }
    options = {OPERATION: "upsert", **dict(options_of(spark, table)), **of_write}
    frame.write.format("hudi").options(**options).mode("append").save(table)


def options_of(spark, table):
    """Yield the options of writers by which an existing table is described."""
    hadoop = spark._jvm.org.apache.hadoop
    path = hadoop.fs.Path(table, ".hoodie/hoodie.properties")
    files = path.getFileSystem(spark._jsc.hadoopConfiguration())
    if not files.exists(path):
        return
    stream = files.open(path)
    try:
        properties = spark._jvm.java.util.Properties()
        properties.load(stream)
    finally:
        stream.close()
    for option, places in OF_TABLE.items():
        value = next(filter(None, map(properties.getProperty, places)), None)
        if value and ":" not in value:  # a custom key generator's fields have types: Hudi reads them
            yield option, value


if __name__ == "__main__":
    main(*sys.argv[1:])
