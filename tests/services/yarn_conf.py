"""The configuration of an embedded YARN and of Spark in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from airflow_occ_provider.embedded.bundle import pyspark_home
from airflow_occ_provider.embedded.java import SHORT_LIVED
from airflow_occ_provider.embedded.ports import free_ports

_SERVER = "org.apache.hadoop.yarn.server"
_LOG4J = """log4j.rootLogger=INFO, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


def write_configuration(folder: Path, web_port: int, settings: Mapping[str, object]) -> None:
    """Write the configuration of both servers and their clients into a folder.

    :param folder: of the YARN.
    :param web_port: of the ResourceManager; the other ports are free ones.
    :param settings: further properties of ``yarn-site.xml``.
    """
    conf = folder / "conf"
    for part in (conf, folder / "staging", folder / "aggregated"):
        part.mkdir(parents=True, exist_ok=True)
    (conf / "log4j.properties").write_text(_LOG4J)
    core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": folder / "tmp"}
    _write_site(conf / "core-site.xml", core)
    _write_site(conf / "yarn-site.xml", {**_settings(folder, web_port), **settings})


def _settings(folder: Path, web_port: int) -> dict[str, object]:
    manager, node = "yarn.resourcemanager", "yarn.nodemanager"
    doors = [f"{manager}.{one}address" for one in ("", "scheduler.", "resource-tracker.", "admin.")]
    doors += [f"{node}.{one}address" for one in ("", "webapp.")]
    return {
        **{f"{one}.hostname": "localhost" for one in (manager, node)},
        **{f"{one}.bind-host": "127.0.0.1" for one in (manager, node)},
        f"{manager}.webapp.address": f"127.0.0.1:{web_port}",
        **{door: f"localhost:{port}" for door, port in zip(doors, free_ports(6), strict=True)},
        f"{manager}.scheduler.class": f"{_SERVER}.resourcemanager.scheduler.fifo.FifoScheduler",
        f"{manager}.recovery.enabled": "true",
        f"{manager}.store.class": f"{_SERVER}.resourcemanager.recovery.FileSystemRMStateStore",
        f"{manager}.fs.state-store.uri": (folder / "state").as_uri(),
        f"{manager}.connect.retry-interval.ms": 500,
        "yarn.scheduler.minimum-allocation-mb": 128,
        f"{node}.localizer.address": "localhost:0",
        f"{node}.local-dirs": folder / "local",
        f"{node}.log-dirs": folder / "logs",
        f"{node}.resource.memory-mb": 10240,
        f"{node}.resource.cpu-vcores": 8,
        **{f"{node}.{one}-check-enabled": "false" for one in ("vmem", "pmem")},
        f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": 99.9,
        f"{node}.env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR",
        f"{node}.remote-app-log-dir": (folder / "aggregated").as_uri(),
        "yarn.log-aggregation-enable": "true",
    }


def _write_site(path: Path, settings: Mapping[str, object]) -> None:
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in settings.items()
    )
    path.write_text(f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n')


def spark_conf(folder: Path, spark: Mapping[str, str]) -> dict[str, object]:
    """Return the lines of ``spark-defaults.conf`` for drivers in YARN.

    :param folder: of the YARN.
    :param spark: an environment for ``spark-submit``.
    """
    python = spark["PYSPARK_PYTHON"]
    of_spark = Path(spark["SPARK_CONF_DIR"]) / "spark-defaults.conf"
    jars = re.search(r"^spark\.jars +(\S+)$", of_spark.read_text(), re.MULTILINE)
    drivers = "spark.yarn.appMasterEnv"
    return {
        **({"spark.jars": f"local:{jars[1]}"} if jars else {}),
        "spark.master": "yarn",
        "spark.submit.deployMode": "cluster",
        "spark.yarn.jars": f"local:{pyspark_home() / 'jars'}/*",
        "spark.yarn.stagingDir": (folder / "staging").as_uri(),
        f"{drivers}.PYSPARK_PYTHON": python,
        f"{drivers}.PYSPARK_DRIVER_PYTHON": python,
        f"{drivers}.SPARK_LOCAL_IP": "127.0.0.1",
        "spark.executorEnv.PYSPARK_PYTHON": python,
        "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        **{f"spark.{one}.extraJavaOptions": " ".join(SHORT_LIVED) for one in ("driver", "executor")},
        **{f"spark.{one}.memory": "700m" for one in ("driver", "executor")},
        "spark.executor.instances": 1,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": "false",
    }
