from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from airflow_occ_provider.attempts.scope import Claim, Isolation, inherited, known_options, leases_above
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.hudi.format.table_config import (
    TableConfig,
    partition_of,
    rejection_reason,
    value_of,
)
from airflow_occ_provider.leases.rules import Mode, Owner, QueuedRequest, Request, Scope
from airflow_occ_provider.storage.address import canonical_table, is_one_table
from airflow_occ_provider.storage.table import HudiTable
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.support.write_runs import IN_PROCESS

TABLE = "s3://lake/trips"
GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
HIVE = {
    "hoodie.table.partition.fields": "dt,hour",
    "hoodie.datasource.write.hive_style_partitioning": "true",
}
ENCODED = {**HIVE, "hoodie.datasource.write.partitionpath.urlencode": "true"}
SLASHES = "hoodie.datasource.write.slash.separated.date.partitioning"
PLAIN_ENCODED = {
    "hoodie.table.partition.fields": "dt,hour",
    "hoodie.datasource.write.partitionpath.urlencode": "true",
}
PLAIN = {"hoodie.table.partition.fields": "dt:SIMPLE,hour:SIMPLE"}


def claim(partitions=None, isolation="snapshot"):
    return Claim(TABLE, partitions, isolation=Isolation(isolation))


@pytest.mark.parametrize(
    ("path", "properties"),
    [
        ("dt=2026-11-21", HIVE),
        ("dt=2026-11-21/hour=7", HIVE),
        ("/dt=2026-11-21/", HIVE),
        ("dt=2026/11/21/hour=7", HIVE),
        ("2026-11-21", PLAIN),
        ("2026/11/21", PLAIN),
        ("dt=2026-11-21 00%3A00", ENCODED),
        ("dt=2026-11-21 00%3A00", HIVE),
        ("dt=über%2Fß/hour=a b&c", ENCODED),
        ("2026-11-21 00%3A00/7", PLAIN_ENCODED),
        ("dt%3D1", PLAIN_ENCODED),
        ("2026/11/21", {**PLAIN_ENCODED, SLASHES: "true"}),
    ],
)
def test_what_can_be_a_partition_is_let_pass(path, properties):
    assert rejection_reason(path, TableConfig(properties)) is None


@pytest.mark.parametrize(
    ("path", "properties", "why"),
    [
        ("2026-11-21", HIVE, "partitioned by dt=.../hour=..."),
        ("hour=7", HIVE, "partitioned by dt=.../hour=..."),
        ("dt=1/day=2", HIVE, "partitioned by dt=.../hour=..."),
        ("dt=1/hour=2/minute=3", HIVE, "partitioned by dt=.../hour=..."),
        ("dt=2026-11-21", PLAIN, "not in hive style, so remove dt="),
        ("dt=1", {}, "not partitioned"),
        ("s3a://lake/trips/dt=1", HIVE, "not a path below the table"),
        ("dt=1/../dt=2", HIVE, "not a path below the table"),
        ("dt=1//hour=2", HIVE, "not a path below the table"),
        ("dt=2026-11-21 00:00", ENCODED, "URL-encodes partition values, so write dt=2026-11-21 00%3A00"),
        ("dt=2026-11-21 00%3a00", ENCODED, "so write dt=2026-11-21 00%3A00"),
        ("dt=a%20b", ENCODED, "so write dt=a b"),
        ("dt=50%/hour=it's", ENCODED, "so write dt=50%25/hour=it%27s"),
        ("dt=x=1", ENCODED, "so write dt=x%3D1"),
        ("dt=a/b/hour=1", ENCODED, "so write dt=a%2Fb/hour=1"),
        ("2026/11/21", PLAIN_ENCODED, "so write 2026/11%2F21"),
        ("2026-11-21 00:00/7", PLAIN_ENCODED, "so write 2026-11-21 00%3A00/7"),
    ],
)
def test_what_cannot_be_a_partition_is_said(path, properties, why):
    assert why in rejection_reason(path, TableConfig(properties))


@pytest.mark.parametrize("release", HUDI_RELEASES)
def test_the_encoded_partitions_that_hudi_wrote_are_let_pass_and_their_values_are_not(tmp_path, release):
    unpack(GOLDEN / release / "hive_style_encoded.zip", tmp_path)
    table = HudiTable(str(tmp_path / "table"))
    config = table.snapshot().config
    paths = {path.parent.name for path in (tmp_path / "table").glob("*/.hoodie_partition_metadata*")}
    assert len(paths) > 5
    assert any("%" in path for path in paths)
    for path in paths:
        assert rejection_reason(path, config) is None
        if (value := unquote(path)) != path:
            assert path in rejection_reason(value, config)


def test_an_impossible_scope_is_refused_and_one_of_a_table_to_be_made_is_not():
    wrong = claim(("day=1",))
    with pytest.raises(ConfigurationError, match=r"^scope: 'day=1' cannot be: .*Remedy: name"):
        wrong.refuse_impossible(TableConfig(HIVE))
    wrong.refuse_impossible(TableConfig())


@pytest.mark.parametrize(
    ("overwrites", "options"),
    [
        (True, {}),
        (False, {"hoodie.datasource.write.operation": "insert_overwrite"}),
        (False, {"hoodie.datasource.write.operation": " INSERT_OVERWRITE_TABLE"}),
        (False, {"hoodie.datasource.overwrite.mode": "DYNAMIC"}),
    ],
)
def test_an_overwrite_of_unknown_scope_is_exclusive(overwrites, options):
    whole = Claim(TABLE, None, overwrites=overwrites)
    assert whole.scope(options, None) == Scope(TABLE, Mode.EXCLUSIVE)
    assert whole.is_fenced(options)  # the lease saves rows, and no submitter is refused for it
    part = Claim(TABLE, ("a",), overwrites=overwrites)
    assert part.scope(options, None) == Scope(TABLE, Mode.EXCLUSIVE, ("a",))
    assert claim().scope({"hoodie.datasource.write.operation": "upsert"}, None).mode is Mode.SHARED


def test_an_unknown_scope_is_shared_and_a_loser_writes_exclusively():
    assert claim().scope({}, None) == Scope(TABLE, Mode.SHARED)
    assert claim().scope({}, ("b", "a")) == Scope(TABLE, Mode.EXCLUSIVE, ("a", "b"))
    assert claim().scope({}, ()) == Scope(TABLE, Mode.EXCLUSIVE)
    assert claim().scope({}, ("",)) == Scope(TABLE, Mode.EXCLUSIVE)


def test_a_declared_scope_is_taken_alone_at_the_first_try():
    assert claim(("a", "a/b")).scope({}, None) == Scope(TABLE, Mode.EXCLUSIVE, ("a",))


def test_a_writer_that_lost_outside_its_scope_requests_both():
    assert claim(("a",)).scope({}, ("b",)) == Scope(TABLE, Mode.EXCLUSIVE, ("a", "b"))
    assert claim(("a",)).scope({}, ()) == Scope(TABLE)


def test_where_hudis_check_is_no_fence_it_is_taken_alone_at_once():
    assert claim(None, "serializable").scope({}, None) == Scope(TABLE, Mode.EXCLUSIVE)
    assert claim(("a",), "serializable").scope({}, None).partitions == ("a",)
    assert not claim(None, "serializable").is_fenced({})
    assert claim().is_fenced({})


def test_a_global_index_makes_keys_a_matter_of_the_whole_table():
    options = {"hoodie.index.type": "global_simple"}
    assert claim(("a",), "serializable").scope(options, None) == Scope(TABLE)
    assert claim(("a",)).scope(options, None).partitions == ("a",)


def test_a_lock_of_one_process_is_no_fence():
    assert not claim().is_fenced(IN_PROCESS)
    assert claim(("a",)).scope(IN_PROCESS, None) == Scope(TABLE)


RUN = Request("i", Owner(("d", "r"), "lease"), (Scope.of(TABLE, ["a"]), Scope.of("/other", None)), 1)
LINE = [QueuedRequest(RUN, "n", (1,))]
TASK = Owner(("d", "r", "t"))


def test_a_writer_that_names_nothing_takes_its_runs_scope():
    shared = claim().scope({}, None)
    assert inherited(shared, None, leases_above(TASK, TABLE, LINE)) == Scope(
        TABLE, Mode.EXCLUSIVE, ("a",)
    )
    assert inherited(shared, None, leases_above(Owner(("d", "r2", "t")), TABLE, LINE)) == shared
    assert inherited(shared, None, leases_above(Owner(("d", "r")), TABLE, LINE)) == shared


def test_a_loser_under_its_runs_lease_asks_for_no_more_than_that_covers():
    declared = Scope.of(TABLE, ["a/1"])
    within, beyond = Scope.of(TABLE, ["a/1", "a/2"]), Scope.of(TABLE, ["a/1", "b"])
    assert inherited(within, declared, leases_above(TASK, TABLE, LINE)) == within
    assert inherited(beyond, declared, leases_above(TASK, TABLE, LINE)) == declared
    assert inherited(beyond, declared, leases_above(Owner(("d", "r2", "t")), TABLE, LINE)) == beyond


@pytest.mark.parametrize(
    ("hudi", "spark", "properties"),
    [
        ({"hoodie.index.type": "GLOBAL_BLOOM"}, {}, {}),
        ({}, {"spark.hoodie.index.type": "GLOBAL_BLOOM"}, {}),
        ({}, {"hoodie.index.type": "GLOBAL_BLOOM"}, {}),
        ({}, {}, {"hoodie.table.metadata.partitions": "column_stats,files,record_index"}),
    ],
)
def test_a_global_index_is_seen_wherever_it_is_named_before_the_job_runs(hudi, spark, properties):
    options = known_options(hudi, spark, TableConfig(properties))
    assert claim(("a",), "serializable").scope(options, None) == Scope(TABLE)


def test_the_nearer_setting_of_the_index_wins():
    near, far = {"hoodie.index.type": "BLOOM"}, {"spark.hoodie.index.type": "GLOBAL_BLOOM"}
    options = known_options(near, far, TableConfig({"hoodie.table.metadata.partitions": "record_index"}))
    assert claim(("a",), "serializable").scope(options, None).partitions == ("a",)


ONE_TABLE = {
    "/lake/trips": (
        *("file:///lake/trips", "/lake//trips/", "file:///lake/x/../trips", "file:/lake/trips"),
        *("//lake/trips", "/lake/trips/.", "FILE:///lake//trips", "file://localhost/lake/trips"),
    ),
    "s3://lake/trips": (
        *("s3a://lake/trips/", "s3n://lake/trips", "s3a://lake//trips", "s3a://lake/./trips"),
        *("s3a://lake/trips/.", "s3a://lake/x/../trips//", "S3A://lake/trips", "s3://lake///trips"),
    ),
    "abfs://c@a.dfs.core.windows.net/trips": (
        *("wasb://c@a.blob.core.windows.net/trips", "wasbs://c@a.blob.core.windows.net//trips"),
        *("WASBS://c@a.blob.core.windows.net/trips/", "abfss://c@a.dfs.core.windows.net/./trips"),
        *("abfss://c@a.blob.core.windows.net/trips", "wasbs://c@A.Blob.Core.Windows.Net/trips"),
    ),
    "abfs://c@a.dfs.core.chinacloudapi.cn/x.blob.y": ("wasb://c@a.blob.core.chinacloudapi.cn/x.blob.y",),
    "abfs://c@blob.dfs.core.windows.net/t": ("wasb://c@blob.blob.core.windows.net/t",),
    "abfs://lake@devstoreaccount1/x@a.blob.y": ("wasb://lake@devstoreaccount1/x@a.blob.y",),
    "abfs://lake/Trips": ("az://lake/Trips",),
    "hdfs://nn/lake/trips": (
        "HDFS://nn:8020/lake//trips",
        "hdfs://NN:8020/lake/trips",
        "hdfs://Nn/lake/trips",
    ),
    "hdfs://nn:9000/lake/trips": ("hdfs://NN:9000/lake/trips/",),
    "viewfs://lake/trips": ("viewfs://Lake/trips", "VIEWFS://lake//trips"),
    "webhdfs://nn/trips": ("webhdfs://NN:9870/trips",),
    "dbfs:///lake/trips": ("dbfs:/lake/trips", "dbfs:////lake/trips"),
    "gs://lake/a b#c?d": ("gs://lake//a b#c?d", "GS://lake/a b#c?d/", "gcs://lake/a b#c?d"),
    "s3://lake/t": ("s3a://lake:443/t", "s3n://lake:80/t/", "s3a://key@lake/t"),
    "s3://Lake/t": ("s3a://Lake/t",),
    "abfs://c@a.dfs.core.windows.net/t": ("abfss://C@A.dfs.core.windows.net:443/t",),
    "s3://lake": ("s3a://lake/", "s3a://lake//", "s3a://lake/."),
}


@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, paths in ONE_TABLE.items() for path in (name, *paths)]
)
def test_a_table_has_one_name(name, path):
    assert canonical_table(path) == name
    assert is_one_table(path, name)


@pytest.fixture
def hadoop(tmp_path, monkeypatch):
    """Hadoop's configuration on this machine."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))

    def hadoop(default_fs, key="fs.defaultFS"):
        line = f"<property><name>{key}</name><value>{default_fs}</value></property>"
        (tmp_path / "core-site.xml").write_text(f"<configuration>{line}</configuration>")

    return hadoop


@pytest.mark.parametrize("path", ["hdfs:///lake/trips", "hdfs:/lake/trips", "HDFS:////lake//trips"])
@pytest.mark.parametrize("key", ["fs.defaultFS", "fs.default.name"])
def test_a_path_without_a_name_node_is_in_hadoops_default_file_system(hadoop, path, key):
    hadoop(" hdfs://NN:8020/ ", key)
    assert canonical_table(path) == "hdfs://nn/lake/trips"
    assert is_one_table(path, "hdfs://nn:8020/lake/trips")


@pytest.mark.parametrize("default", ["s3a://lake", "viewfs://cluster", "not a URL"])
@pytest.mark.parametrize("path", ["hdfs:///lake/trips", "hdfs:/lake/trips"])
def test_a_path_of_an_unknown_name_node_has_no_queue(hadoop, path, default):
    hadoop(default)
    with pytest.raises(ConfigurationError, match=r"names no NameNode.*Remedy: write the whole path"):
        canonical_table(path)


def test_a_path_of_no_name_node_has_no_queue_without_hadoops_configuration(monkeypatch, tmp_path):
    for folder in ("", str(tmp_path)):
        monkeypatch.setenv("HADOOP_CONF_DIR", folder)
        with pytest.raises(ConfigurationError, match="names no NameNode"):
            canonical_table("viewfs:///lake/trips")


def test_different_tables_have_different_names():
    tables = [*ONE_TABLE, "hdfs://nn2/lake/trips", "viewfs://nn/lake/trips", "gs://lake/t", "/lake/t"]
    assert len({canonical_table(table) for table in tables}) == len({*tables})


STYLE, ENCODES = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
)
DATES = {"hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd"}
NOON = "2026-11-29T05:00:00+00:00"


# Each path with a value before it is what Hudi 1.2.0 made of that value.
@pytest.mark.parametrize(
    ("value", "options", "path"),
    [
        ("2026-11-29", {}, "2026-11-29"),
        ("a/b c", {}, "a/b c"),
        ("2026-11-29", {STYLE: "true"}, "dt=2026-11-29"),
        ("a/b c", {STYLE: "true"}, "dt=a/b c"),
        (NOON, {ENCODES: "true"}, "2026-11-29T05%3A00%3A00+00%3A00"),
        ("a/b c", {ENCODES: "true"}, "a%2Fb c"),
        (NOON, {STYLE: "true", ENCODES: "true"}, "dt=2026-11-29T05%3A00%3A00+00%3A00"),
        ("2026-11-29", {SLASHES: "true"}, "2026/11/29"),
        ("2026-11-29", {SLASHES: "true", STYLE: "true"}, "dt=2026/11/29"),
        (NOON, {SLASHES: "true", ENCODES: "true"}, "2026/11/29T05%3A00%3A00+00%3A00"),
        ("2026-11-29", DATES, "2026/11/29"),
        ("2026-11-29", {**DATES, STYLE: "true"}, "dt=2026/11/29"),
        (NOON, {**DATES, STYLE: "true"}, "dt=2026/11/29"),
        (NOON, {next(iter(DATES)): "yyyy/MM/dd/HH"}, "2026/11/29/05"),
        ("dt=2026-11-29", {STYLE: "true"}, "dt=2026-11-29"),
    ],
)
def test_a_value_is_spelled_as_hudi_spells_its_partition(value, options, path):
    table = TableConfig({"hoodie.table.partition.fields": "dt", **options})
    assert partition_of(value, table) == path
    assert partition_of(value_of(path), table) == path


@pytest.mark.parametrize(
    ("value", "properties"),
    [
        ("2026-11-29", {}),
        ("2026-11-29", {"hoodie.table.name": "trips"}),
        ("2026-11-29", HIVE),
        ("2026-11-29", PLAIN),
        ("..", {"hoodie.table.partition.fields": "dt"}),
        ("monday", {"hoodie.table.partition.fields": "dt", **DATES}),
        ("2026-11-29T00:30:00+02:00", {"hoodie.table.partition.fields": "dt", **DATES}),
        ("2026-11-29", {"hoodie.table.partition.fields": "dt", next(iter(DATES)): "yyyy/MM/dd/HH"}),
        (
            "2026-11-29",
            {"hoodie.table.partition.fields": "dt", next(iter(DATES)): "yyyy-'W'ww"},
        ),
    ],
)
def test_a_value_whose_partition_is_not_certain_has_none(value, properties):
    assert partition_of(value, TableConfig(properties)) is None


def test_a_path_of_several_fields_stands_for_itself():
    assert partition_of("dt=2026-11-29/hour=7", TableConfig(HIVE)) == "dt=2026-11-29/hour=7"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("dt=2026-11-29", "2026-11-29"),
        ("dt=2026-11-29T05%3A00", "2026-11-29T05:00"),
        ("2026/11/29", "2026/11/29"),
        ("rate=5%", "5%"),
        ("dt=2026-11-29/hour=7", "dt=2026-11-29/hour=7"),
    ],
)
def test_a_partition_shows_its_value(path, value):
    assert value_of(path) == value
