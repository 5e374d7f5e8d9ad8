"""A PySpark job of this provider: runs Spark SQL that writes one Hudi table.

Run through ``run_job.py`` as ``run_sql.py TABLE NAME TARGET STATEMENT ...``. It registers the table
under NAME if a catalog in the session's memory does not have it, and runs nothing unless TARGET, the
table as the writing statement names it, is at TABLE. It imports the standard library and PySpark only.
"""

from __future__ import annotations

import sys


def main(table, name, target, *statements):
    """Run the statements in a session, to which ``run_job.py`` has given Hudi's SQL."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    problem = register(spark, table, name) or misplaced(spark, table, target)
    if problem:
        refuse(problem)
    for statement in statements:
        spark.sql(statement)


def register(spark, table, name):
    """Register the table for this driver; return why that is not possible."""
    if spark.catalog.tableExists(quoted(name)):
        return None
    if spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "in-memory":
        return f"the catalog has no table {name}: register it there, or give its name as table_name"
    database = name.rpartition(".")[0]
    if database:
        spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
    path = table.replace("\\", "\\\\").replace("'", "\\'")
    spark.sql(f"CREATE TABLE {quoted(name)} USING hudi LOCATION '{path}'")
    return None


def misplaced(spark, table, target):
    """Return why a table's name is not that of the table at a path, or None."""
    state = spark._jsparkSession.sessionState()
    metadata = state.catalog().getTableMetadata(state.sqlParser().parseTableIdentifier(quoted(target)))
    location = metadata.location().toString()
    if qualified(spark, location) == qualified(spark, table):
        return None
    return f"the statement writes {target}, which is at {location}, and the task's table is {table}"


def qualified(spark, location):
    """Return a location as Hadoop names it, by the one name of its storage."""
    path = spark._jvm.org.apache.hadoop.fs.Path(location)
    return one_name(path.getFileSystem(spark._jsc.hadoopConfiguration()).makeQualified(path).toString())


def one_name(url):
    """Return a URL with one scheme for S3, one scheme and host for an Azure account."""
    scheme, separator, rest = url.rstrip("/").partition("://")
    if scheme in ("s3a", "s3n"):
        return f"s3://{rest}"
    if scheme in ("abfs", "abfss", "wasb", "wasbs"):
        authority, slash, path = rest.partition("/")
        return f"abfs://{authority.replace('.blob.', '.dfs.')}{slash}{path}"
    return f"{scheme}{separator}{rest}"


def quoted(name):
    """Return a table's name in this session's catalog as SQL has it."""
    parts = name.replace("`", "").split(".")
    return ".".join(f"`{part}`" for part in parts[-2:])


def refuse(problem):
    """End the driver before anything is written, and report why."""
    runner = sys.modules["airflow_occ_runner"]  # see run_job.py
    runner.report("not_protected", reason=f"{problem}; no statement was run")
    sys.exit(runner.EXIT_UNPROTECTED)


if __name__ == "__main__":
    main(*sys.argv[1:])
