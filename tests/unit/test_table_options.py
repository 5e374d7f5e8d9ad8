"""What a write leaves as it is for the other writers of a table."""

from __future__ import annotations

import pytest

from airflow_occ_provider.hudi.format.table_config import TableConfig
from airflow_occ_provider.hudi.writer.options import contradictions
from airflow_occ_provider.hudi.writer.table_options import table_options, table_rules

STATS = "hoodie.metadata.index.column.stats.enable"
VERSION = "hoodie.write.table.version"


def config(version, metadata=""):
    return TableConfig(
        {"hoodie.table.version": str(version), "hoodie.table.metadata.partitions": metadata}
    )


def test_a_write_of_an_old_table_names_its_version_and_adds_no_index():
    options = table_options(config(6, "files"))
    assert options[VERSION] == "6"
    assert options[STATS] == "false"
    assert set(options.values()) == {"6", "false"}


def test_an_index_that_is_there_stays():
    options = table_options(config(6, "files,column_stats"))
    assert STATS not in options
    assert "hoodie.metadata.record.index.enable" in options


@pytest.mark.parametrize("version", [8, 9])
def test_a_newer_table_needs_nothing(version):
    assert table_options(config(version, "files")) == {}


def test_a_table_that_does_not_exist_needs_nothing():
    assert table_options(TableConfig()) == {}


def test_a_table_without_a_metadata_table_keeps_its_version_alone():
    assert table_options(config(6)) == {VERSION: "6"}
    # Hudi 1.0 knows no older version to write.
    assert table_options(config(5)) == {}


@pytest.mark.parametrize(
    ("key", "value", "is_refused"),
    [
        (STATS, "true", True),
        (f"spark.{STATS}", "TRUE", True),
        (STATS, "false", False),
        ("hoodie.metadata.enable", "true", False),
    ],
)
def test_nothing_else_adds_one(key, value, is_refused):
    rules = table_rules(table_options(config(6, "files")))
    refused = [each.key for each in contradictions([(key, value)], "hudi_options", rules)]
    assert refused == ([key] if is_refused else [])
    assert not [*contradictions([(key, value)], "conf", table_rules(table_options(config(8, "files"))))]
