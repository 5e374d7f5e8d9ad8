from __future__ import annotations

from dataclasses import replace

import pytest
from airflow.sdk.exceptions import AirflowSensorTimeout, TaskDeferred

from airflow_occ_provider.errors import LockUnreachableError
from airflow_occ_provider.leases import queue as queue_module
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.sensors import lease as module
from airflow_occ_provider.sensors.lease import HudiLeaseSensor
from tests.support.memory_store import MemoryStore
from tests.support.patched import only_in
from tests.support.task_state import Store

TTL_MS = 3000


class Hook:
    """A lock connection whose queue is in memory."""

    def __init__(self):
        self.nodes, self.open, self.now_s = MemoryStore(), 0, 0.0
        self.clock = lambda: self.now_s

    def wait(self, sensor):
        self.now_s += 1.0
        return not sensor.poke({})

    def leases(self):
        self.open += 1
        line = Queue(self.nodes, self.clock)
        line.close = self._close
        return line

    def _close(self):
        self.open -= 1


@pytest.fixture
def hook(monkeypatch):
    hook = Hook()
    monkeypatch.setattr(module, "lock_hook", lambda conn_id: hook)
    yield hook
    assert hook.open == 0


def stand(hook, *partitions):
    line = Queue(hook.nodes)
    return line.request(
        Request("i", Owner(("d", "r", "t")), (Scope.of("/t", partitions or None),), TTL_MS)
    )


def sensor(scope=None, **arguments):
    return HudiLeaseSensor(task_id="s", table="file:///t", scope=scope, **arguments)


def test_a_free_scope_ends_the_wait_at_once_either_way(hook):
    stand(hook, "a")
    sensor("b", deferrable=False).execute({})
    sensor(["b"], deferrable=True).execute({})


def test_one_that_is_not_free_is_waited_for_in_the_triggerer(hook):
    stand(hook, "a")
    with pytest.raises(TaskDeferred) as deferred:
        sensor("a/1", deferrable=True, poke_interval=7, timeout=60).execute({})
    arguments = deferred.value.trigger.serialize()[1]
    assert (arguments["table"], arguments["partitions"], arguments["poll_s"]) == ("/t", ["a/1"], 7)


def test_the_dead_are_not_waited_for(hook):
    stand(hook, "a")
    waiting = sensor()
    pokes = 1
    while hook.wait(waiting):
        pokes += 1
    assert pokes == 5
    assert hook.nodes.stamps() == {}
    waiting._close()


@pytest.fixture
def poke(hook, monkeypatch):
    """Pokes as a rescheduled sensor does: each time in a process of its own, after some seconds."""
    only_in(monkeypatch, queue_module, "time", time=lambda: hook.now_s)
    context = {"task_state_store": Store()}

    def poke(after_s):
        hook.now_s += after_s
        waiting = sensor(mode="reschedule")
        try:
            return waiting.poke(context)
        finally:
            waiting._close()

    return poke


@pytest.mark.parametrize("interval_s", [1.0, 60.0, 3600.0])
def test_a_rescheduled_sensor_does_not_wait_for_the_dead(hook, poke, interval_s):
    stand(hook, "a")
    assert [poke(interval_s) for _ in range(6)].index(True) in (4, 5)
    assert hook.nodes.stamps() == {}


def test_a_rescheduled_sensor_waits_for_an_owner_that_renews(hook, poke):
    line = Queue(hook.nodes)
    ticket = stand(hook, "a")
    for _ in range(20):
        assert not poke(60.0)
        line.renew(line.adopt(ticket)) if ticket.epoch == 1 else line.renew(ticket)
        ticket = replace(ticket, epoch=2)
    assert len(hook.nodes.stamps()) == 1


@pytest.mark.parametrize("other", [{}, {"requests": 1}, {"at_ms": 1, "requests": {"n": [1]}}, [], "x"])
def test_observations_of_another_shape_are_ignored(hook, other):
    store = Store(hudi_lease_sensor=other)
    stand(hook, "a")
    waiting = sensor(mode="reschedule")
    assert not waiting.poke({"task_state_store": store})
    waiting._close()
    assert store["hudi_lease_sensor"]["requests"]


def test_a_clock_that_goes_back_between_two_pokes_expires_nothing(hook, poke):
    stand(hook, "a")
    assert not any(poke(seconds) for seconds in (60.0, -600.0, -600.0, -600.0, -600.0, -600.0))


def test_an_outage_restarts_the_terms_of_a_rescheduled_sensor(hook, poke, monkeypatch):
    stand(hook, "a")
    assert not any(poke(60.0) for _ in range(4))
    with monkeypatch.context() as outage:
        outage.setattr(hook.nodes, "stamps", away)
        assert not poke(60.0)
    assert not any(poke(60.0) for _ in range(4))
    assert any(poke(60.0) for _ in range(2))


def test_a_failed_poke_counts_against_no_request(hook, monkeypatch):
    stand(hook, "a")
    waiting = sensor()
    for _ in range(4):
        assert hook.wait(waiting)
    stamps = hook.nodes.stamps
    monkeypatch.setattr(hook.nodes, "stamps", away)
    assert hook.wait(waiting)
    monkeypatch.setattr(hook.nodes, "stamps", stamps)
    hook.now_s += 70.0
    for _ in range(4):
        assert hook.wait(waiting)
    assert not hook.wait(waiting)
    waiting._close()


def away(**_):
    raise LockUnreachableError("away")


def test_a_wait_that_was_too_long_is_airflows_own_time_out(hook):
    with pytest.raises(AirflowSensorTimeout, match="was not free within 60 s"):
        sensor(timeout=60).execute_complete({}, {"status": "timeout"})
