"""Compaction and clustering on real Hudi: run, killed, repeated, rolled back, or lost to a writer."""

from __future__ import annotations

import pytest

from tests.support.modules import run_module

pytestmark = pytest.mark.real


@pytest.mark.parametrize("store", ["local", pytest.param("s3", marks=pytest.mark.nightly)])
def test_table_services_end_as_documented(store):
    done = run_module("table_services", "--store", store)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
