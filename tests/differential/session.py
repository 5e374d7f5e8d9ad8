"""The one Spark in which all pairs run, with the latches compiled in."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from airflow_occ_provider.embedded.bundle import cache_folder, find_bundle, pyspark_home
from airflow_occ_provider.embedded.java import find_java_home
from airflow_occ_provider.embedded.object_store import EmbeddedObjectStore
from airflow_occ_provider.embedded.spark import spark_environment

_SOURCE = Path(__file__).with_name("latches.scala")
_COMPILE_TIMEOUT_S = 300
# A table of a few rows needs no compiled code, no second shuffle partition and no optimising JIT.
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=384m -XX:+UseSerialGC -Xss4m"
    ),
    "spark.jars": "",
    "spark.hadoop.fs.file.impl": "differential.LatchedFileSystem",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
    "spark.shuffle.compress": "false",
    "spark.cleaner.periodicGC.interval": "5min",
    "spark.ui.showConsoleProgress": "false",
    # Hudi 1.2.0 leaves streams to the garbage collector: 30 writes of one JVM use up the usual 96.
    "spark.hadoop.fs.s3a.connection.maximum": "2000",
}


def compile_latches(hudi: str) -> Path:
    """Return the folder of the latches' classes, compiled against a release of Hudi."""
    return compile_scala(_SOURCE, hudi)


def compile_scala(source: Path, hudi: str) -> Path:
    """Return the folder of a source's classes, compiled against a release of Hudi.

    The Scala compiler is the one among PySpark's jars: the JRE has no ``javac``.

    :param source: the Scala file.
    :param hudi: the release.
    """
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    classes = cache_folder() / f"{source.parent.name}-{digest}-{hudi}"
    if not (classes / "COMPILED").is_file():
        classes.mkdir(parents=True, exist_ok=True)
        jars = pyspark_home() / "jars"
        path = os.pathsep.join([str(find_bundle(hudi)), *map(str, jars.glob("*.jar"))])
        command = [
            *(str(find_java_home() / "bin" / "java"), "-cp", f"{jars}/*", "scala.tools.nsc.Main"),
            *("-nowarn", "-d", str(classes), "-classpath", path, str(source)),
        ]
        subprocess.run(command, check=True, timeout=_COMPILE_TIMEOUT_S)
        (classes / "COMPILED").touch()
    return classes


def start_spark(hudi: str, folder: Path, store: EmbeddedObjectStore | None = None) -> Any:
    """Start the Spark session that runs all pairs of this process.

    :param hudi: the release of Hudi.
    :param folder: scratch of its own.
    :param store: where the tables may be, beside the local disk.
    """
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment(folder, hudi, store))
    (folder / "conf" / "log4j2.properties").write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.out.ref = out\n"
        "appender.out.type = File\nappender.out.name = out\n"
        f"appender.out.fileName = {folder / 'driver.log'}\n"
        "appender.out.layout.type = PatternLayout\n"
        "appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} [%t]: %m%n\n"
    )
    builder = SparkSession.builder.appName("differential")
    jars = store.jars() if store else ()
    path = os.pathsep.join(map(str, [compile_latches(hudi), find_bundle(hudi), *jars]))
    for key, value in {**_SETTINGS, "spark.driver.extraClassPath": path}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
