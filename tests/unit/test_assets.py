"""The asset of a table, and Airflow's own handling of URIs with the scheme ``hudi``."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import airflow
import jsonschema
import pytest
from airflow.sdk import Asset
from airflow.sdk.lineage import HookLineageCollector
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
from hypothesis import given
from hypothesis import strategies as st

from airflow_occ_provider.assets.table import hudi_asset, normalized
from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.provider_info import get_provider_info
from airflow_occ_provider.storage.address import canonical_table

AZURE = "abfs://raw@lake.dfs.core.windows.net/trips"
# The URI of a table, its own spellings, and those of the scheme hudi.
SPELLINGS = {
    "s3://lake/trips": (
        ("s3://lake/trips", "s3a://lake/trips/", "S3N://lake//trips/.", "s3a://lake/old/../trips"),
        ("hudi://s3a/lake/trips", "hudi://s3/lake/trips/", "hudi://s3a://lake/trips", "hudi:s3://lake/trips"),
    ),
    "gs://lake/trips": (("gs://lake/trips", "gcs://lake/trips"), ("hudi://gs/lake/trips",)),
    AZURE: (
        (AZURE, "abfss://raw@lake.dfs.core.windows.net/trips", "wasbs://raw@lake.blob.core.windows.net/trips/"),
        ("hudi://abfss/raw@lake.dfs.core.windows.net/trips", "hudi://wasb/raw@lake.blob.core.windows.net/trips"),
    ),
    "hdfs://nn/trips": (("hdfs://nn:8020/trips/", "hdfs://NN/trips"), ("hudi://hdfs/nn:8020/trips",)),
    "viewfs://lake/trips": (("viewfs://lake/trips",), ("hudi://viewfs/lake/trips",)),
    "file:///lake/trips": (
        ("/lake/trips", "/lake//trips/", "file:/lake/trips", "file:///lake/./trips"),
        ("hudi:///lake/trips", "hudi:/lake/trips/", "hudi://file/lake/trips", "hudi://file:///lake/trips"),
    ),
}  # fmt: skip
ALL = [(uri, one) for uri, (own, hudi) in SPELLINGS.items() for one in (*own, *hudi)]
OF_HUDI = [(uri, one) for uri, (_, hudi) in SPELLINGS.items() for one in hudi]
NO_TABLE = (
    "hudi://",
    "hudi:",
    "hudi:///",
    "hudi://s3",
    "hudi://s3/",
    "hudi://[::1]/t",
    "hudi://s3/[b/t",
)

authorities = st.sampled_from(("", "s3", "s3a:", "file", "file:", "hudi", "hudi:", "lake", "[::1]"))
texts = st.text("abs3:/.[]@?#%&= é\\hudi", max_size=20)
keys = st.text("ab?#%&=@ é.", min_size=1).filter(lambda key: key.strip(" ./"))
tables = st.builds(
    "{}{}".format, st.sampled_from(("s3a://lake/", "/", "gs://lake/", "hdfs://nn/")), keys
)


@pytest.mark.parametrize(("uri", "spelling"), ALL)
def test_a_table_has_one_asset(uri, spelling):
    asset = hudi_asset(spelling)
    assert asset.name == uri
    assert asset == hudi_asset(uri) == hudi_asset(asset.uri)


@pytest.mark.parametrize(("uri", "spelling"), OF_HUDI)
def test_airflow_reads_a_hudi_uri_as_the_tables_own(uri, spelling):
    assert Asset(name="trips", uri=spelling).uri == hudi_asset(uri).uri
    assert Asset(spelling).name == spelling  # the name is not normalised


def test_two_tables_have_two_assets():
    assert len({hudi_asset(uri) for uri in SPELLINGS}) == len(SPELLINGS)


@given(tables, tables)
def test_tables_are_one_asset_if_their_paths_are_one(one, other):
    is_one = canonical_table(one) == canonical_table(other)
    assert (hudi_asset(one).uri == hudi_asset(other).uri) == is_one
    assert hudi_asset(one).uri == hudi_asset(one).name


@given(authorities, texts)
def test_what_is_normalised_stays_as_it_is(authority, path):
    parts = urlsplit("hudi://s3/lake")._replace(netloc=authority, path=path)
    assert normalized(normalized(parts)) == normalized(parts)


@pytest.mark.parametrize("uri", NO_TABLE)
def test_a_uri_without_a_table_ends_neither_a_dag_nor_the_triggerer(uri):
    asset = Asset(uri)
    assert asset.uri.startswith("hudi:")
    assert asset.normalized_uri == asset.uri


def test_a_name_is_no_table():
    with pytest.raises(ConfigurationError, match="'trips' is not a path"):
        hudi_asset("trips")


def test_an_asset_takes_airflows_further_arguments():
    asset = hudi_asset("s3a://lake/trips", group="lake", extra={"a": 1})
    assert (asset.group, asset.extra) == ("lake", {"a": 1})


def test_airflow_knows_the_handler_and_the_factory():
    uris = get_provider_info()["asset-uris"]
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(uris, schema["properties"]["asset-uris"])
    assert [one["schemes"] for one in uris] == [["hudi"]]
    manager = ProvidersManagerTaskRuntime()
    assert manager.asset_uri_handlers["hudi"] is normalized
    assert manager.asset_factories["hudi"] is hudi_asset


def test_a_hook_of_another_provider_can_report_a_table():
    given = HookLineageCollector().create_asset(
        scheme="hudi", asset_kwargs={"table": "s3a://lake/trips"}
    )
    assert given == hudi_asset("s3://lake/trips")


def test_a_path_with_a_password_is_refused():
    """Airflow takes it out of the URI, and not out of the name."""
    with pytest.raises(ConfigurationError, match="password"):
        hudi_asset("s3a://key:secret@lake/trips")
