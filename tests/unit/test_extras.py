"""Remedies that name an extra of the package, as Airflow's commands print them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import fsspec
import pytest
from rich.text import Text

from airflow_occ_provider.errors import ConfigurationError, install_extra
from airflow_occ_provider.storage.address import open_file_system

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_a_remedy_is_printed_whole_by_rich(extra):
    assert Text.from_markup(install_extra(extra)).plain == install_extra(extra)
    assert extra in install_extra(extra)


def test_no_text_of_the_package_names_an_extra_in_brackets():
    for path in (ROOT / "airflow_occ_provider").rglob("*.py"):
        if path.parent.name != "embedded":  # its errors are not printed by Airflow
            assert not re.search(r"airflow-occ-provider\[", path.read_text()), path


def test_every_extra_that_a_remedy_names_exists():
    named = [
        name
        for path in (ROOT / "airflow_occ_provider").rglob("*.py")
        for name in re.findall(r"""install_extra\(['"](\w+)['"]\)""", path.read_text())
    ]
    assert len(named) > 4
    assert set(named) <= EXTRAS.keys()


@pytest.mark.parametrize(
    ("scheme", "extra"),
    [
        *((scheme, "s3") for scheme in ("s3", "s3a", "s3n")),
        *((scheme, "gcs") for scheme in ("gs", "gcs")),
        *((scheme, "azure") for scheme in ("abfs", "abfss", "wasb", "wasbs")),
    ],
)
def test_each_storage_names_its_extra(monkeypatch, scheme, extra):
    def missing(*_, **__):
        raise ImportError("Install its package")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(ConfigurationError, match=f"with its extra {extra}$") as told:
        open_file_system(scheme, f"{scheme}://c@a.dfs.core.windows.net/t")
    assert Text.from_markup(str(told.value)).plain == str(told.value)
    assert extra in EXTRAS
