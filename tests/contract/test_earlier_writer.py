"""Two tasks whose writes overlap: the later one is ended, and queued behind the other."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.guards import early_stop
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.attempts.waits import WaitNeeded
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.storage.table import HudiTable
from tests.support.continued_tries import Process, World
from tests.support.earlier_writer import Pair

REQUESTED = "INFO ActiveTimelineV2: Creating a new instant [==>{}__commit__REQUESTED]"


class Later(World):
    """Its driver makes the later write, and goes on until it is ended."""

    def __init__(self, pair):
        super().__init__(pair.path / ".hoodie", self._write)
        self.pair, self.queue = pair, self.lock.leases()
        self.table = HudiTable(str(pair.path)).path
        self.seen = {}

    def other(self, owner):
        scope = Scope.of(self.table, None, Mode.SHARED)
        return self.queue.request(Request("other", owner, (scope,), 60_000))

    def _write(self, say, asked_to_end):
        say(REQUESTED.format(self.pair.later))
        while not asked_to_end.wait(0.01):
            pass
        self.seen = self.queue.announced(self.ticket, self.table)
        return -9


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(early_stop, "_PERIOD_S", 0.05)
    world = Later(Pair(tmp_path))
    world.ticket = world.other(Owner(("dag", "run", "earlier")))
    return world


def test_the_later_task_is_ended_and_waits_for_the_earlier_one(world):
    world.queue.announce(world.ticket, [world.pair.earlier])
    process = Process(world, early_stop=EarlyStop.ACT)
    with pytest.raises(WriteConflictError, match=r"Queued behind: .* gave way to") as raised:
        process.run(is_deferrable=False)
    assert raised.value.outcome == "yielded"
    assert not raised.value.committed
    assert world.seen == {world.pair.later: Owner(("dag", "run", "task"))}
    record = process.journal.record
    assert (record.gave_way, record.rivals) == (("p1",), (world.pair.earlier,))
    assert record.escalation is None
    assert not (world.pair.path / ".hoodie" / ".heartbeat" / world.pair.later).exists()


def gives_way(world, try_number=1):
    process = Process(world, try_number, early_stop=EarlyStop.ACT)
    with pytest.raises(WriteConflictError) as raised:
        process.run(is_deferrable=False)
    assert raised.value.outcome == "yielded"
    return process.journal.record


def requested(world, try_number=2):
    """Return the scopes that a try requests, while another task has the whole table."""
    world.queue.release(world.ticket)
    rival = Request("rival", Owner(("dag", "run", "rival")), (Scope.of(world.table, None),), 60_000)
    world.queue.request(rival)
    with pytest.raises(WaitNeeded):
        Process(world, try_number).run()
    (ours,) = (one for one in world.queue.requests() if one.request.owner != rival.owner)
    return ours.request.scopes


def test_its_next_try_runs_beside_others_and_is_queued_with_those_that_gave_way(world):
    world.queue.announce(world.ticket, [world.pair.earlier])
    gives_way(world)
    shared, hint = requested(world)
    assert shared == Scope.of(world.table, None, Mode.SHARED)
    assert hint == Scope.of(f"{world.table}/.hoodie/hints", ["p1"])


def test_a_task_that_gave_way_twice_writes_alone(world):
    world.queue.announce(world.ticket, [world.pair.earlier])
    gives_way(world)
    record = gives_way(world, 2)
    assert (record.gave_way, record.escalation) == (("p1",), ("p1",))
    assert requested(world, 3) == (Scope.of(world.table, ["p1"]),)
