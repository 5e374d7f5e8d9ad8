"""Has Hudi roll back the failed writes of one table: a PySpark job of our own.

Run through ``write_job.py`` as ``clean_job.py TABLE``. What it does is what Hudi's lazy cleaning does
after any commit: pending writes whose heartbeats have expired are rolled back, those that were
completed meanwhile are left alone. It imports the standard library and PySpark only.
"""

from __future__ import annotations

import sys


def main(table):
    """Clean a table with the protected writer's own options."""
    from pyspark.sql import SparkSession

    context = SparkSession.builder.getOrCreate().sparkContext
    hudi = context._jvm.org.apache.hudi
    builder = hudi.config.HoodieWriteConfig.newBuilder()
    builder.withPath(table).forTable(table_name(context, table)).withProps(given_options(hudi))
    engine = hudi.client.common.HoodieSparkEngineContext(context._jsc)
    client = hudi.client.SparkRDDWriteClient(engine, builder.build())
    try:
        client.clean()
    finally:
        client.close()


def table_name(context, table):
    """Return what the table calls itself, by which Hudi infers the key of its lock."""
    hadoop = context._jvm.org.apache.hadoop
    path = hadoop.fs.Path(table, ".hoodie/hoodie.properties")
    stream = path.getFileSystem(context._jsc.hadoopConfiguration()).open(path)
    try:
        properties = context._jvm.java.util.Properties()
        properties.load(stream)
    finally:
        stream.close()
    return properties.getProperty("hoodie.table.name")


def given_options(hudi):
    """Return what this driver was given; what signs a commit has no place in a clean."""
    given = hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    names = given.stringPropertyNames()
    options = {key: given.getProperty(key) for key in names if key.startswith("hoodie.")}
    return {**options, "hoodie.table.services.enabled": "true"}  # else Hudi's clean() does nothing


if __name__ == "__main__":
    main(*sys.argv[1:])
