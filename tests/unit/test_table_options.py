"""What a write leaves as it is for the other writers of a table."""

from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.writer.options import contradictions
from airflow_occ_provider.hudi.writer.table_options import table_options, table_rules

STATS = "hoodie.metadata.index.column.stats.enable"
RECORDS = "hoodie.metadata.record.index.enable"
RECORDS_SINCE_1_1 = "hoodie.metadata.global.record.level.index.enable"
BY_PARTITION = "hoodie.metadata.record.level.index.enable"
VERSION = "hoodie.write.table.version"


def config(version, metadata=""):
    return TableConfig(
        {"hoodie.table.version": str(version), "hoodie.table.metadata.partitions": metadata}
    )


@pytest.mark.parametrize("metadata", ["files", ""], ids=["files", "none"])
def test_a_write_of_an_old_table_names_its_version_and_adds_no_index(metadata):
    options = table_options(config(6, metadata))
    assert options.pop(VERSION) == "6"
    assert {STATS, RECORDS, RECORDS_SINCE_1_1, BY_PARTITION} <= options.keys()
    assert set(options.values()) == {"false"}


def test_an_index_that_is_there_is_asked_for_or_hudi_would_remove_it():
    options = table_options(config(6, "files,column_stats,record_index"))
    assert options[STATS] == options[RECORDS] == options[RECORDS_SINCE_1_1] == "true"
    assert options["hoodie.metadata.index.bloom.filter.enable"] == "false"
    assert BY_PARTITION not in options  # which kind it is does not show


def test_a_write_beside_one_of_1_0_does_not_begin_its_commit_of_the_metadata_table_early():
    assert table_options(config(8)) == {"hoodie.metadata.streaming.write.enabled": "false"}


@pytest.mark.parametrize("version", [5, 9])
def test_a_table_of_another_version_needs_nothing(version):
    assert table_options(config(version, "files")) == {}
    assert table_rules({STATS: "false"}) == ()


def test_a_table_that_does_not_exist_needs_nothing():
    assert table_options(TableConfig()) == {}


@pytest.mark.parametrize(
    ("key", "value", "is_refused"),
    [
        (STATS, "true", True),
        (f"spark.{STATS}", "TRUE", True),
        (RECORDS_SINCE_1_1, "true", True),
        (BY_PARTITION, "true", True),
        (VERSION, "8", True),
        (STATS, "False", False),
        (VERSION, "6", False),
        ("hoodie.metadata.enable", "true", False),
    ],
)
def test_nothing_sets_them_otherwise(key, value, is_refused):
    rules = table_rules(table_options(config(6, "files")))
    refused = [each.key for each in contradictions([(key, value)], "hudi_options", rules)]
    assert refused == ([key] if is_refused else [])


def test_nothing_removes_an_index_that_is_there():
    rules = table_rules(table_options(config(6, "files,column_stats")))
    assert [*contradictions([(STATS, "false")], "hudi_options", rules)]
