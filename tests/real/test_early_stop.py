"""A running writer that has lost: ended early, or observed and then refused by real Hudi."""

from __future__ import annotations

import os
import signal

import pytest

from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.storage.table import HudiTable
from tests.writers import Writer, inflight, wait_for

pytestmark = [pytest.mark.real, pytest.mark.nightly]


def committed(stack, table):
    writer = Writer(stack, table)
    settlement = writer.run()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-6000:]
    return settlement


def losing(stack, table, mode):
    """A writer that is suspended while another one commits the same file groups."""
    committed(stack, table)
    loser = Writer(stack, table, early_stop=mode).start()
    wait_for("the write", lambda: inflight(table), loser)
    os.kill(loser.process.pid, signal.SIGSTOP)
    return loser, committed(stack, table)


def test_a_driver_whose_write_has_lost_is_ended_and_the_next_one_commits(hudi_stack, tmp_path):
    table = tmp_path / "t"
    loser, won = losing(hudi_stack, table, EarlyStop.ACT)
    lost = loser.wait()  # still suspended: only the guard ends it
    assert lost.outcome is Outcome.COMMIT_CONFLICT, loser.log[-6000:]
    assert lost.rival == won.instant
    assert f"can no longer commit: {won.instant} has completed" in lost.lines[0]
    assert lost.retired == (lost.instant,)
    again = committed(hudi_stack, table)
    snapshot = HudiTable(str(table)).snapshot()
    assert snapshot.timeline.completed_writes()[-1].time == again.instant
    assert not snapshot.timeline.pending_writes()


def test_what_the_observer_foresees_is_what_hudi_does(hudi_stack, tmp_path):
    loser, won = losing(hudi_stack, tmp_path / "t", EarlyStop.OBSERVE)
    wait_for("the finding", lambda: loser.guard.found, loser)
    os.kill(loser.process.pid, signal.SIGCONT)
    lost = loser.wait()
    assert (lost.outcome, lost.rival) == (Outcome.COMMIT_CONFLICT, won.instant)
    assert loser.stop is None
    assert loser.guard.found.stop.rival == won.instant
