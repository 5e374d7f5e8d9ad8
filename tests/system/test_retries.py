"""Retries in a real Airflow: the scheduler grants a lost conflict its budget, however a task is made."""

from __future__ import annotations

import pytest

from airflow_occ_provider.retry import DEFAULT_BUDGETS
from tests.support.writers import JOB, Writer
from tests.system.dags.retried import NAMES
from tests.system.rivals import commits

pytestmark = [pytest.mark.system, pytest.mark.nightly]


def test_every_kind_of_task_is_retried_after_a_lost_conflict(hudi_stack, start, tmp_path):
    table, gate = tmp_path / "t", tmp_path / "gate"
    gate.mkdir()
    everywhere = ["--partitions", str(len(NAMES)), "--rows", "40"]
    assert Writer(hudi_stack, table, ["--writer", "first", *everywhere]).run().commit
    run = start("retried", job=JOB, table=table, gate=gate)
    run.wait_for(lambda: all((gate / f"{name}.begun").exists() for name in NAMES), "the four writers")
    assert Writer(hudi_stack, table, ["--writer", "rival", *everywhere], retire=False).run().commit
    for name in NAMES:
        (gate / f"{name}.go").touch()
    run.wait()
    for name in NAMES:
        ((index, task),) = run.mapped(name).items()
        log = run.log(name, 1, index)
        assert (task["state"], task["try_number"]) == ("success", 2), log[-4000:]
        assert task["max_tries"] == sum(DEFAULT_BUDGETS.values())
        assert "[conflict, retry 1 of 5]" in log
    assert len(commits(table)) == 2 + len(NAMES)
