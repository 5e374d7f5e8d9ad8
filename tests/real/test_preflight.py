"""A preflight beside a pending write of real Hudi: it is waited for, and then nothing is lost."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.attempts.rivals import Preflight
from airflow_occ_provider.attempts.scope import Claim
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.hudi.writer.heartbeat import HeartbeatRule
from airflow_occ_provider.storage.table import HudiTable
from airflow_occ_provider.task.run import open_journal
from airflow_occ_provider.triggers.heartbeat import HudiHeartbeatTrigger
from tests.support.suspended import resume, suspend
from tests.support.task_state import Store, Task
from tests.support.writers import Writer, inflight, wait_for

pytestmark = [pytest.mark.real, pytest.mark.nightly]
RULE = HeartbeatRule(60_000, 2)


def committed(stack, table, *arguments):
    writer = Writer(stack, table, arguments)
    settlement = writer.run()
    assert settlement.outcome is Outcome.COMMITTED, writer.log[-6000:]
    return settlement


def reached(wait, table):
    """What the trigger of a wait fires with."""
    trigger = HudiHeartbeatTrigger(
        table=str(table),
        instants=list(wait.instants),
        until=[fate.value for fate in wait.until],
        poll_s=0.5,
        deadline_ms=wait.deadline_ms,
    )

    async def first():
        return (await anext(trigger.run())).payload

    return asyncio.run(asyncio.wait_for(first(), 300))


def test_a_pending_write_of_the_same_partition_is_waited_for_and_the_job_then_commits(
    hudi_stack, tmp_path
):
    table = tmp_path / "t"
    committed(hudi_stack, table)  # into the partitions 0 and 1
    rival = Writer(hudi_stack, table, ("--partition", "0", "--rows", "40")).start()
    wait_for("the write", lambda: inflight(table), rival)
    suspend(rival.process.pid)
    (instant,) = inflight(table)
    store, logged = Store(), []

    def flight(number=1):
        context = {"ti": Task(number, 14), "task_state_store": store}
        log = type("Log", (), {"info": lambda _, *given: logged.append(given[0] % given[1:])})()
        return Preflight(
            open_journal(context), HudiTable(str(table)), str(table), RULE, timedelta(minutes=5), log
        )

    def snapshot():
        return HudiTable(str(table)).snapshot()

    def claim(*partitions):
        return Claim(str(table), partitions)

    flight().begin(claim("1"), {}, snapshot())  # it does not touch that partition: no wait
    with pytest.raises(WaitNeeded) as needed:
        flight().begin(claim("0"), {}, snapshot())
    assert needed.value.wait.instants == (instant,)
    assert f"waiting for {instant} (UPSERT of 0 by a running writer)" in logged[-1]
    with pytest.raises(WaitNeeded):
        flight().go_on()
    resume(rival.process.pid)
    begun = time.monotonic()
    event = reached(needed.value.wait, table)
    assert [(one["instant"], one["fate"]) for one in event["writers"]] == [(instant, "committed")]
    assert time.monotonic() - begun < 120
    assert rival.wait().outcome is Outcome.COMMITTED
    flight().go_on()
    own = committed(hudi_stack, table, "--partition", "0", "--rows", "20")
    assert own.instant > instant
