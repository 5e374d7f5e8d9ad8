"""A PySpark job of this provider: Hudi rolls back the failed writes of one table.

Run through ``run_job.py`` as ``clean.py TABLE``. Like Hudi's lazy cleaning after any commit, it rolls
back pending writes whose heartbeats have expired, and ignores those that were completed meanwhile. It
imports the standard library and PySpark only.
"""

from __future__ import annotations

import sys


def main(table):
    """Clean a table with the protected writer's own options."""
    from pyspark.sql import SparkSession

    # Not Hudi's procedure: it needs the SQL extension, and the table in the session's catalog.
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
    """Return the table's own name, from which Hudi infers the key of its lock."""
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
    """Return this driver's Hudi options without the labels that sign a commit."""
    properties = hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    names = properties.stringPropertyNames()
    options = {key: properties.getProperty(key) for key in names if key.startswith("hoodie.")}
    return {**options, "hoodie.table.services.enabled": "true"}  # else Hudi's clean() does nothing


if __name__ == "__main__":
    main(*sys.argv[1:])
