"""The suite that is shipped for backend authors, run as one of them runs it on a new store."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases.store import NodeTakenError
from tests.contract import toy_store
from tests.contract.toy_store import ToyStore

ROOT = Path(__file__).parents[2]
MY_PACKAGE = """
from collections import defaultdict
from {module} import {store}
from tests.contract.toy_store import Bucket

_buckets = defaultdict(Bucket)
_buckets["/nothing/answers/here"].lock.acquire()

def MyStore(folder, timeout_s=10.0):
    return {store}(_buckets[folder], timeout_s)
"""


class Overwrites(ToyStore):
    """Wrong in one thing: a name that exists is created again."""

    def create(self, name, data, requires=None):
        try:
            return super().create(name, data, requires)
        except NodeTakenError:
            return self.read([name])[name]


class AnotherError(ToyStore):
    """Wrong in one thing: an error of its client is passed on."""

    @contextmanager
    def _opened(self):
        try:
            with super()._opened() as bucket:
                yield bucket
        except LockUnreachableError as error:
            raise TimeoutError from error


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


def test_an_error_that_is_not_the_queues_fails(run):
    result = run(AnotherError)
    assert result.parseoutcomes()["failed"] == 6
    result.stdout.fnmatch_lines_random(["FAILED *test_a_store_that_does_not_answer_is_unreachable*"])
