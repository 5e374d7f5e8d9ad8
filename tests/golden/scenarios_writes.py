"""Golden tables of what writers do: operations, keys and indexes, partition paths, live writers."""

from __future__ import annotations

from pyspark.sql.functions import udf

from tests.golden.hudi_table import MULTI_WRITER, GoldenTable, fails, refused

_EARLY = "hoodie.write.concurrency.early.conflict.detection"
_UTC = {"hoodie.table.timeline.timezone": "UTC"}


def operations(table: GoldenTable) -> None:
    """Copy-on-write: every write operation, with signatures, cleans and a metadata table."""
    table.metadata_table = table.checksums = True
    table.of(index__type="SIMPLE", metadata__enable="true", cleaner__commits__retained="2")
    table.options |= _UTC
    table.write([(i, f"p{i % 3}") for i in range(9)], "bulk_insert")
    signed = {"_airflow_identity": "a" * 32, "_airflow_run": "r 1"}
    table.write([(10, "p0"), (11, "p3")], "insert", signed)
    table.write([(1, "p1"), (12, "p4")], "upsert", {"_airflow_identity": "b" * 32})
    table.write([(2, "p2")], "delete")
    table.write([(20, "p0"), (21, "p5")], "insert_overwrite", {"_airflow_identity": "c" * 32})
    table.write([(22, "p5")], "delete_partition", datasource__write__partitions__to__delete="p5")
    table.write([(30, "p1"), (31, "p6")], "insert_overwrite_table")
    table.write([(31, "p6")], "upsert")


def created(table: GoldenTable) -> None:
    """A table that has not been written yet."""
    table.spark.sql(
        f"create table golden_created_{table.hudi_version.replace('.', '_')} (id string, ts long) "
        "using hudi tblproperties (primaryKey = 'id', preCombineField = 'ts', "
        f"'hoodie.table.timeline.timezone' = 'UTC') location '{table.path}'"
    )


def unpartitioned(table: GoldenTable) -> None:
    """Copy-on-write without partitions, with a name that is not the folder's."""
    generator = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
    table.of(datasource__write__keygenerator__class=generator, table__name="another_name")
    table.options |= _UTC | {"hoodie.datasource.write.partitionpath.field": ""}
    table.write([(i, "-") for i in range(4)], "insert")
    table.write([(1, "-"), (9, "-")])
    table.write([(2, "-")], "insert_overwrite_table")


def several_levels(table: GoldenTable) -> None:
    """Merge-on-read with a bloom index, partitioned by year and month."""
    table.of("MERGE_ON_READ", index__type="BLOOM")
    keygen = "org.apache.hudi.keygen.ComplexKeyGenerator"
    table.options |= _UTC | {
        "hoodie.datasource.write.partitionpath.field": "year,month",
        "hoodie.datasource.write.keygenerator.class": keygen,
    }
    for operation, months in (("insert", "01 02"), ("upsert", "02"), ("insert_overwrite", "01")):
        data = [(f"{month}-{i}", "2026", month, i) for month in months.split() for i in range(2)]
        frame = table.spark.createDataFrame(data, "id string, year string, month string, ts long")
        table.save(frame.coalesce(1), operation, {})


_ODD = ["a b", "x=1&y", "50%", "über/ß", "2026-11-21 10:00:00", "plus+plus", "it's"]


def hive_style_encoded(table: GoldenTable) -> None:
    """Copy-on-write in hive style with URL-encoded partition paths."""
    encode = {"partitionpath__urlencode": "true", "hive_style_partitioning": "true"}
    table.of(**{f"datasource__write__{key}": value for key, value in encode.items()})
    table.options |= _UTC
    table.write(list(enumerate(_ODD)), "bulk_insert")
    table.write([(0, _ODD[0]), (8, _ODD[1])])
    table.write([(9, _ODD[3])], "insert_overwrite")


def plain_odd_paths(table: GoldenTable) -> None:
    """Merge-on-read whose partition paths carry spaces, percent and equals signs as they are."""
    table.of("MERGE_ON_READ", datasource__write__hive_style_partitioning="true")
    table.options |= _UTC | MULTI_WRITER
    rows = list(enumerate(["a b", "50%25", "k=v", "über", "under_score", "a/b/c"]))
    table.write(rows, "insert")
    table.write(rows)
    refused(table, rows[:5], "upsert")


def bucket_index(table: GoldenTable) -> None:
    """Merge-on-read with a simple bucket index."""
    table.of("MERGE_ON_READ", index__type="BUCKET", bucket__index__num__buckets="2")
    table.options |= _UTC | MULTI_WRITER
    table.write([(i, f"p{i % 2}") for i in range(8)])
    table.write([(1, "p1"), (30, "p1")])
    table.write([(40, "p1")], "insert_overwrite")
    refused(table, [(0, "p0"), (2, "p0")], "upsert")


def live_direct(table: GoldenTable) -> None:
    """Copy-on-write: pending writers of several operations, with direct markers and heartbeats."""
    table.of()
    table.options |= MULTI_WRITER | _UTC
    table.write([(i, f"p{i % 3}") for i in range(6)], "insert")
    refused(table, [(1, "p1"), (7, "p7")], "upsert")
    refused(table, [(8, "p2"), (9, "p9")], "insert")
    refused(table, [(8, "p0")], "insert_overwrite")
    refused(table, [(2, "p2")], "delete")
    _unreadable_source(table)
    _stuck_in_a_partition(table, "bulk_insert")


def live_server(table: GoldenTable) -> None:
    """Merge-on-read: pending writers with the timeline server's markers and heartbeats."""
    server = {"embed__timeline__server": "true", "write__markers__type": "TIMELINE_SERVER_BASED"}
    table.of("MERGE_ON_READ", **server)
    table.options |= MULTI_WRITER | _UTC
    table.write([(i, f"p{i % 3}") for i in range(6)], "insert")
    refused(table, [(1, "p1"), (7, "p7")], "upsert")
    refused(table, [(8, "p2"), (9, "p9")], "insert")
    refused(table, [(5, "p2")], "delete")
    _stuck_in_a_partition(table, "upsert")


def early_conflict(table: GoldenTable) -> None:
    """Copy-on-write: of two writers of the same files the later found the earlier one's markers."""
    table.of(write__num__retries__on__conflict__failures="0")
    table.options |= MULTI_WRITER | _UTC | {f"{_EARLY}.enable": "true"}
    strategy = "org.apache.hudi.table.marker.SimpleDirectMarkerBasedDetectionStrategy"
    table.options[f"{_EARLY}.strategy"] = strategy
    table.write([(i, f"p{i % 2}") for i in range(4)], "insert")
    refused(table, [(1, "p1")], "upsert")
    fails(lambda: table.write([(3, "p1")]), "Early conflict detected")


def _unreadable_source(table: GoldenTable) -> None:
    """Leave a write that failed while it read its source: it is only requested."""

    def broken(_: object) -> str:
        raise OSError("the source is gone")

    frame = table.spark.createDataFrame([("1", "p1", 2)], "id string, p string, ts long")
    frame = frame.withColumn("v", udf(broken, "string")("id"))
    fails(lambda: table.save(frame, "upsert", {}), "the source is gone")


def _stuck_in_a_partition(table: GoldenTable, operation: str) -> None:
    """Leave a write that failed while writing, as a file is in place of its partition."""
    obstacle = table.path / "zz"
    obstacle.write_text("")
    fails(lambda: table.write([(70, "p0"), (71, "p8"), (72, "zz")], operation))
    obstacle.unlink()
