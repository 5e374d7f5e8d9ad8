"""Compaction and clustering on real Hudi: run, killed, run again, rolled back, and lost to a writer."""

from __future__ import annotations

import pytest

from tests.modules import run_module

pytestmark = pytest.mark.real


def test_table_services_come_to_what_is_said_of_them():
    done = run_module("services")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
