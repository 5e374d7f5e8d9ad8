"""An environment in which ``spark-submit`` runs Hudi jobs on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from airflow_occ_provider.embedded.bundle import find_bundle, pyspark_home
from airflow_occ_provider.embedded.java import SHORT_LIVED, find_java_home
from airflow_occ_provider.embedded.object_store import EmbeddedObjectStore
from airflow_occ_provider.embedded.private import write_private


def spark_environment(
    folder: Path, hudi_version: str | None = None, store: EmbeddedObjectStore | None = None
) -> dict[str, str]:
    """Return an environment for ``spark-submit`` with Hudi.

    Spark comes from ``SPARK_HOME``, or is the installed PySpark. Python comes from ``PYSPARK_PYTHON``,
    or is that of this process.

    :param folder: folder of Spark's configuration and scratch files.
    :param hudi_version: release of Hudi's bundle, see ``find_bundle``.
    :param store: a running object store that the jobs may use, with its own credentials.
    :raises EmbeddedError: if Java, Spark or the bundle is missing.
    """
    conf, scratch = folder / "conf", folder / "local"
    conf.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(exist_ok=True)
    write_private(
        conf / "spark-defaults.conf",
        f"spark.jars {find_bundle(hudi_version)}\n"
        "spark.serializer org.apache.spark.serializer.KryoSerializer\n"
        f"spark.driver.extraJavaOptions {' '.join(SHORT_LIVED)}\n"
        "spark.ui.enabled false\n"
        "spark.driver.host localhost\n"
        "spark.driver.bindAddress 127.0.0.1\n"
        "spark.sql.shuffle.partitions 2\n"
        f"spark.local.dir {scratch}\n"
        f"spark.sql.warehouse.dir {folder / 'warehouse'}\n"
        + (_store_settings(store, scratch) if store else ""),
    )
    java, spark = find_java_home(), pyspark_home()
    python = os.environ.get("PYSPARK_PYTHON") or sys.executable
    return {
        **os.environ,
        "JAVA_HOME": str(java),
        "SPARK_HOME": str(spark),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LAUNCHER_OPTS": " ".join(SHORT_LIVED),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "PATH": os.pathsep.join([str(spark / "bin"), str(java / "bin"), os.environ.get("PATH", "")]),
    }


def _store_settings(store: EmbeddedObjectStore, scratch: Path) -> str:
    jars = os.pathsep.join(map(str, store.jars()))  # those of spark.jars are copied by each driver
    settings = {
        **store.spark_settings,
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.hadoop.hadoop.tmp.dir": scratch,
    }
    return "".join(f"{key} {value}\n" for key, value in settings.items())
