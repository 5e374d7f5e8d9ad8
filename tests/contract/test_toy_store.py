"""The suite that is shipped for backend authors, run as one of them runs it on a new store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_occ_provider.leases.store import NodeTakenError
from tests.contract import toy_store
from tests.contract.toy_store import ToyStore

ROOT = Path(__file__).parents[2]
MY_PACKAGE = """
from collections import defaultdict
from {module} import {store}
from tests.contract.toy_store import Bucket

_buckets = defaultdict(Bucket)

def MyStore(folder):
    return {store}(_buckets[folder])
"""


class Overwrites(ToyStore):
    """Wrong in one thing: a name that exists is created again."""

    def create(self, name, data, requires=None):
        try:
            return super().create(name, data, requires)
        except NodeTakenError:
            return self.read([name])[name]


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs what the page about lease stores shows, on a store."""
    monkeypatch.syspath_prepend(ROOT)
    page = ROOT / "docs" / "how-to" / "write-a-lease-store.md"
    conftest, tests = re.findall(r"```py\n(.*?)```", page.read_text(), re.DOTALL)

    def do(store):
        package = MY_PACKAGE.format(module=store.__module__, store=store.__name__)
        pytester.makepyfile(my_package=package, test_my_store=tests)
        pytester.makeconftest(conftest)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-q")

    return do


def test_a_store_in_one_file_of_at_most_120_lines_passes_the_suite(run):
    assert len(Path(toy_store.__file__).read_text().splitlines()) <= 120
    outcomes = run(ToyStore).parseoutcomes()
    assert outcomes.keys() == {"passed"}
    assert outcomes["passed"] > 75


def test_a_wrong_store_fails(run):
    result = run(Overwrites)
    assert result.parseoutcomes()["failed"] == 2
    result.stdout.fnmatch_lines_random(
        ["FAILED *test_a_name_is_created_once*", "FAILED *test_a_required_node_must_exist*"]
    )
