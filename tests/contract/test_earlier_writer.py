"""Two tasks whose writes overlap: the later one is ended, and queued behind the other."""

from __future__ import annotations

import pytest

from airflow_occ_provider.attempts.guards import early_stop
from airflow_occ_provider.attempts.guards.early_stop import EarlyStop
from airflow_occ_provider.errors import WriteConflictError
from airflow_occ_provider.leases.rules import Mode, Owner, Request, Scope
from airflow_occ_provider.storage.table import HudiTable
from tests.contract.test_continued import Process, World
from tests.unit.test_earlier_writer import Pair

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


def test_the_later_task_is_ended_and_waits_for_the_earlier_one_and_then_writes_alone(world):
    world.queue.announce(world.ticket, [world.pair.earlier])
    process = Process(world, early_stop=EarlyStop.ACT)
    with pytest.raises(WriteConflictError, match=r"Queued behind: .* gave way to") as raised:
        process.run(is_deferrable=False)
    assert raised.value.outcome == "yielded"
    assert not raised.value.committed
    assert world.seen == {world.pair.later: Owner(("dag", "run", "task"))}
    record = process.journal.record
    assert (record.escalation, record.rivals) == (("p1",), (world.pair.earlier,))
    assert not (world.pair.path / ".hoodie" / ".heartbeat" / world.pair.later).exists()
