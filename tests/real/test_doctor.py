"""Real writers, and what ``airflow hudi doctor`` says of the tables that they make."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.reading.doctor import examine
from airflow_occ_provider.storage.table import HudiTable
from tests.support.writers import Writer

pytestmark = [pytest.mark.real, pytest.mark.nightly]


def committed(stack, table, zone):
    writer = Writer(stack, table, environment={"TZ": zone})
    settlement = writer.run()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-3000:]
    return settlement.instant


def test_writers_in_one_zone_are_sound_and_one_in_another_is_found(hudi_stack, tmp_path):
    table = tmp_path / "t"
    committed(hudi_stack, table, "UTC")
    committed(hudi_stack, table, "UTC")
    assert examine(HudiTable(str(table))) == ()
    other = committed(hudi_stack, table, "America/New_York")
    committed(hudi_stack, table, "UTC")
    found = {one.check: one for one in examine(HudiTable(str(table)))}
    assert found["time_zones"].instants == (other,)
