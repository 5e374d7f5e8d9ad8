"""A running writer's own heartbeat: what stops its driver, and what must not."""

from __future__ import annotations

import logging
import subprocess
from contextlib import contextmanager

import pytest

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.errors import HeartbeatExpiredError, RolledBackError
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.submitters.processes import end_processes
from tests.stalls.course import stall
from tests.support.rows import count_rows
from tests.support.writers import JOB, NO_METADATA_TABLE, Writer, wait_for

pytestmark = pytest.mark.real
INTERVAL_MS, MISSES = 1000, 4
BEAT = {
    **NO_METADATA_TABLE,
    "hoodie.client.heartbeat.interval_in_ms": INTERVAL_MS,
    "hoodie.client.heartbeat.tolerable.misses": MISSES,
}


@contextmanager
def held(stack, table):
    """A writer that has begun and would write for minutes."""
    gate = table.parent / "gate"
    gate.mkdir(exist_ok=True)
    arguments = ("--gate", str(gate))
    writer = Writer(stack, table, arguments, hudi_options=BEAT, watched=True).start()
    try:
        wait_for("its begin", (gate / "w.begun").exists, writer)
        yield writer
    finally:
        if writer.settlement is None:
            end_processes("", writer.process.pid)


def instants(table):
    return HudiTable(str(table)).snapshot().timeline


@contextmanager
def heartbeats_refused(table):
    """Make the storage refuse heartbeats: a file stands in place of their folder."""
    folder = table / ".hoodie" / ".heartbeat"
    folder.rename(away := folder.with_name(".away"))
    folder.touch()
    yield
    folder.unlink()
    away.rename(folder)


def test_a_writer_whose_heartbeat_timer_died_is_stopped_and_the_next_try_commits(
    hudi_stack, tmp_path, caplog
):
    table = tmp_path / "t"
    with held(hudi_stack, table) as writer:
        with heartbeats_refused(table):
            wait_for("the timer's end", lambda: "HoodieHeartbeatException" in writer.log, writer)
        settlement = writer.wait()
    assert writer.stop is not None  # its gate is closed: otherwise it would write for minutes
    assert settlement.outcome is Outcome.HEARTBEAT_EXPIRED
    assert isinstance(settlement.error(), HeartbeatExpiredError)
    assert settlement.error().retry
    (pending,) = instants(table).pending_writes()
    assert settlement.retired == (pending.time,)
    again = Writer(hudi_stack, table, watched=True).run()
    assert again.outcome is Outcome.COMMITTED
    assert sum(count_rows(table).values()) == 20
    assert instants(table).pending_writes() == ()


@pytest.mark.nightly
def test_a_writer_that_an_unprotected_writer_rolls_back_is_stopped_at_once(hudi_stack, tmp_path):
    table = tmp_path / "t"
    with held(hudi_stack, table) as writer:
        (victim,) = instants(table).pending_writes()
        log = tmp_path / "rogue.log"
        job = [str(JOB), str(table), "--writer", "rogue", "--option", "hoodie.metadata.enable=false"]
        with log.open("w") as output:
            rogue = subprocess.Popen(
                ["spark-submit", "--master", "local[1]", *job],
                env=hudi_stack.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                wait_for(
                    "its rollback", lambda: HudiTable(str(table)).snapshot().rollback_of(victim.time)
                )
                settlement = writer.wait()
            finally:
                end_processes("", rogue.pid)
    assert writer.stop is not None
    assert settlement.outcome is Outcome.ROLLED_BACK
    assert isinstance(settlement.error(), RolledBackError)
    assert victim.time in str(settlement.error())


@pytest.mark.nightly
def test_a_store_that_stalls_under_a_live_writer_stops_no_driver(hudi_stack, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    writer = stall(hudi_stack, tmp_path, INTERVAL_MS, MISSES, 3 * MISSES * INTERVAL_MS / 1000)
    assert writer.stop is None
    assert writer.settlement.outcome is Outcome.COMMITTED
    assert writer.exit_code == 0
    words = [record.getMessage() for record in caplog.records if record.name == writer.logger.name]
    for part in ("cannot be looked at", "as dead"):
        assert sum(part in word for word in words) == 1, words
    assert sum(count_rows(tmp_path / "t").values()) == 20
