"""A driver on standby: started before its lease is granted, it warms up meanwhile.

It is shipped with the runner: it runs on Python 3.7, and imports the standard library and PySpark only.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from airflow_occ_provider.driver.contract import PAYLOAD, STANDBY
from airflow_occ_provider.in_driver.folder import Folder, LocalFolder

# The site's options are for its tables: this one takes no lock of theirs, and no catalog hears of it.
OPTIONS = {
    "hoodie.table.name": "airflow_occ_standby",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "id",
    "hoodie.write.concurrency.mode": "single_writer",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
    "hoodie.datasource.hive_sync.enable": "false",
    "hoodie.datasource.meta.sync.enable": "false",
    "hoodie.metrics.on": "false",
    "hoodie.write.commit.callback.on": "false",
}


class WarmUp(NamedTuple):
    """What a driver is told before it starts.

    :param limit_s: the longest wait for its grant.
    :param settings: those of Spark that Hudi needs.
    """

    limit_s: float
    settings: Mapping[str, str]

    def to_bytes(self) -> bytes:
        """Return the file's content."""
        return json.dumps(self._asdict()).encode()


def read(folder: Folder) -> WarmUp | None:
    """Return what a driver is told, if it is on standby."""
    content = folder.read(STANDBY)
    return None if content is None else WarmUp(**json.loads(content))


def warm_up(files: LocalFolder) -> None:
    """Make Spark's session, and in local mode a small table of Hudi.

    Then the JVM has loaded and compiled what a write needs. In another mode no folder of this host
    reaches the executors. The job gets the same session. An error is only told: the job shows by itself
    what does not work.

    :param files: of the attempt, with which the table is removed at the latest. Once the payload is
        there, the lease is held.
    """
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.builder.getOrCreate()
        if str(session.sparkContext.master).startswith("local"):
            with tempfile.TemporaryDirectory(dir=str(files.path)) as folder:
                rows = session.range(2).selectExpr("id", "'a' as part")
                for _ in range(2):  # an insert into an empty table, then into one with files
                    if PAYLOAD in files.entries():
                        break
                    writer = rows.write.format("hudi").options(**OPTIONS).mode("append")
                    writer.save("file://" + folder + "/table")
    except Exception as error:  # noqa: BLE001 - of Spark, Hudi or Java
        sys.stderr.write(f"This driver did not warm up: {error}\n")
