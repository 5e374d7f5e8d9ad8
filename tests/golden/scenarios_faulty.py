"""Tables of writers that differ or have died, for ``airflow hudi doctor``; they are not recorded.

Run as ``python -m tests.golden.scenarios_faulty FOLDER RELEASE ZONE SCENARIO...``: one JVM makes, or
continues, the tables of some scenarios.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.golden.hudi_table import MULTI_WRITER, GoldenTable, refused
from tests.golden.record_tables import spark_session
from tests.golden.scenarios_unsafe import held, rolled_back_alive

_UTC = {"hoodie.table.timeline.timezone": "UTC"}
_VERSION_6 = {"hoodie.write.table.version": "6", "hoodie.write.auto.upgrade": "false"}
_ROWS = [(i, f"p{i % 2}") for i in range(4)]
_MORE_THAN_KEPT = 32
_LONG_ENOUGH_S = 5


def releases(table: GoldenTable) -> None:
    """Copy-on-write of version 6: one write of whatever release runs this."""
    table.of()
    table.options |= _VERSION_6 if table.modern else {}
    table.write(_ROWS)


def markers(table: GoldenTable) -> None:
    """Copy-on-write: two pending writes, with direct markers and with the timeline server's."""
    table.of()
    table.options |= MULTI_WRITER | _UTC
    table.write(_ROWS, "insert")
    refused(table, [(0, "p0")])
    table.of(embed__timeline__server="true", write__markers__type="TIMELINE_SERVER_BASED")
    refused(table, [(1, "p1")])


def archival(table: GoldenTable) -> None:
    """Copy-on-write: a write that failed, and more younger ones than Hudi keeps by default."""
    table.of()
    table.options |= MULTI_WRITER | _UTC
    table.write(_ROWS, "insert")
    refused(table, [(1, "p1")])
    for _ in range(_MORE_THAN_KEPT):
        table.write([(0, "p0")])


def long_write(table: GoldenTable) -> None:
    """Copy-on-write: two writes, one of which takes some seconds."""
    table.of()
    table.options |= _UTC | {"hoodie.clean.automatic": "false"}
    table.write(_ROWS, "insert")
    with held(table, {}):
        time.sleep(_LONG_ENOUGH_S)


def colliding(table: GoldenTable) -> None:
    """Copy-on-write: at the time of a write, Hudi's timeline is given the request of another."""
    table.of()
    table.options |= _UTC
    table.write(_ROWS, "insert")
    with table.client() as client:
        hudi = table.java().common.table
        conf = client.getEngineContext().getStorageConf()
        meta = hudi.HoodieTableMetaClient.builder().setConf(conf).setBasePath(str(table.path)).build()
        requested = hudi.timeline.HoodieInstant.State.REQUESTED
        (written,) = table.completed(".commit")
        instant = meta.createNewInstant(requested, "deltacommit", written)
        meta.getActiveTimeline().createNewInstant(instant)


def planned(table: GoldenTable) -> None:
    """Copy-on-write: a requested clustering."""
    table.of(parquet__small__file__limit="0")
    table.options |= MULTI_WRITER
    for start in range(2):
        table.write([(start * 10 + i, f"p{i % 2}") for i in range(4)], "insert")
    table.call("run_clustering", "op => 'schedule'")


def backward_begin(table: GoldenTable) -> None:
    """The part of ``backward`` that a JVM east of the other one runs."""
    planned(table)


def backward(table: GoldenTable) -> None:
    """Copy-on-write: a clustering that another time zone had planned."""
    table.of(parquet__small__file__limit="0")
    table.options |= MULTI_WRITER
    table.call("run_clustering", "op => 'execute'")


def heartbeat_left(table: GoldenTable) -> None:
    """Copy-on-write: a rollback of a live writer, whose heartbeat stays in early releases."""
    rolled_back_alive(table)


_CONTINUED = {"backward_begin": "backward"}


def main(folder: str, hudi_version: str, zone: str, *names: str) -> None:
    """Let one JVM run scenarios."""
    with tempfile.TemporaryDirectory(prefix="airflow_occ_faulty_") as scratch:
        spark = spark_session(Path(scratch), hudi_version, zone)
        for name in names:
            scenario = globals()[name]
            scenario(GoldenTable(spark, hudi_version, Path(folder) / _CONTINUED.get(name, name)))
            print(f"{hudi_version} {name}: made", flush=True)
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
