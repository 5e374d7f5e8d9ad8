"""A running writer that has lost: ended early, or observed and then refused by real Hudi."""

from __future__ import annotations

from contextlib import closing, contextmanager

import pytest

from airflow_occ_provider.attempts.driver import Admitted
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.outcome import Outcome
from airflow_occ_provider.leases.keeper import Keeper
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.leases.zookeeper.access import ZookeeperAccess
from airflow_occ_provider.leases.zookeeper.store import ZookeeperStore
from airflow_occ_provider.storage.table import HudiTable
from tests.support.suspended import resume, suspend
from tests.support.writers import Writer, inflight, wait_for

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
    suspend(loser.process.pid)
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


@pytest.mark.parametrize("has_metadata_table", [True, False])
def test_the_drivers_log_shows_when_hudi_has_taken_its_comparison_point(
    hudi_stack, tmp_path, has_metadata_table
):
    options = {"hoodie.metadata.enable": str(has_metadata_table).lower()}
    writers = [Writer(hudi_stack, tmp_path / "t", hudi_options=options) for _ in range(2)]
    for number, writer in enumerate(writers):
        instant = writer.run().instant
        is_making_it = has_metadata_table and number == 0  # a line of its writes proves nothing
        assert writer.guard.log.instants.compared == (set() if is_making_it else {instant})


def test_what_the_observer_foresees_is_what_hudi_does(hudi_stack, tmp_path):
    loser, won = losing(hudi_stack, tmp_path / "t", EarlyStop.OBSERVE)
    wait_for("the finding", lambda: loser.guard.doomed, loser)
    resume(loser.process.pid)
    lost = loser.wait()
    assert (lost.outcome, lost.rival) == (Outcome.COMMIT_CONFLICT, won.instant)
    assert loser.stop is None
    assert loser.guard.doomed.stop.rival == won.instant


@contextmanager
def shared_lease(stack, table, task):
    """The lease of a task of unknown scope, in the real queue."""
    store = ZookeeperStore(ZookeeperAccess(stack.zookeeper.hosts, timeout_s=10.0), f"/hudi{table}")
    scope = Scope.of(str(table), None, Mode.SHARED)
    with closing(Queue(store)) as queue:
        ticket = queue.request(Request(task, Owner(("dag", "run", task)), (scope,), 60_000))
        assert queue.status(ticket).held
        with Keeper(queue, ticket, 60_000) as keeper:
            yield Admitted(scope, ticket.order_token, keeper=keeper)
            queue.release(ticket)


def test_the_later_of_two_tasks_gives_way_before_either_has_committed(hudi_stack, tmp_path):
    table = tmp_path / "t"
    committed(hudi_stack, table)
    with (
        shared_lease(hudi_stack, table, "earlier") as first,
        shared_lease(hudi_stack, table, "later") as second,
    ):
        earlier = Writer(hudi_stack, table, early_stop=EarlyStop.ACT, lease=first).start()
        wait_for("the write", lambda: inflight(table), earlier)
        wait_for("its announcement", second.announced, earlier)
        suspend(earlier.process.pid)
        later = Writer(hudi_stack, table, early_stop=EarlyStop.ACT, lease=second).start()
        wait_for("the later write", lambda: len(inflight(table)) > 1, earlier, later)
        suspend(later.process.pid)
        yielded = later.wait()  # still suspended: only the guard ends it
        resume(earlier.process.pid)
        won = earlier.wait()
    assert won.outcome is Outcome.COMMITTED, earlier.log[-6000:]
    assert (yielded.outcome, yielded.rival) == (Outcome.YIELDED, won.instant), later.log[-6000:]
    assert "gives way to the earlier" in yielded.lines[0]
    assert "dag / run / earlier" in yielded.lines[0]
    committed(hudi_stack, table)
    assert not HudiTable(str(table)).snapshot().timeline.pending_writes()
