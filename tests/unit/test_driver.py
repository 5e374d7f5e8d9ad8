"""How a driver is ended, with a clock of our own."""

from __future__ import annotations

import signal

import pytest

from airflow_occ_provider.submitters import processes as module
from airflow_occ_provider.submitters.processes import end_processes

AIRFLOWS_PATIENCE_S = 5.0


class Clock:
    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s

    def sleep(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def ended(clock, monkeypatch):
    """End a driver whose processes live until a signal: in its session, and marked in another."""

    def ended(session, marked, look_s=0.0):
        def looked(processes):
            clock.sleep(look_s)
            return [one for one in processes if one.alive]

        monkeypatch.setattr(module, "processes_of", lambda *_: looked([session, marked]))
        return end_processes("identity", 1)

    return ended


class Process:
    def __init__(self, *ends_by):
        self.pid, self.ends_by, self.got = 1, ends_by, []

    @property
    def alive(self):
        return not set(self.ends_by) & set(self.got)

    def send_signal(self, number):
        self.got.append(number)


class Late(Process):
    """Seen only after a while."""

    def __init__(self, clock, *ends_by):
        super().__init__(*ends_by)
        self.clock = clock

    @property
    def alive(self):
        return self.clock.now_s >= module._POLL_S and super().alive


@pytest.mark.parametrize("look_s", [0.0, 0.2])
def test_a_wrapped_driver_that_ignores_everything_is_left_within_airflows_patience(clock, ended, look_s):
    session, marked = Process(), Process()
    assert ended(session, marked, look_s) == [1, 1]
    for process in (session, marked):
        assert process.got[0] == signal.SIGTERM
        assert signal.SIGKILL in process.got
    assert clock.now_s < AIRFLOWS_PATIENCE_S - 0.5


def test_a_wrapped_driver_that_minds_is_not_killed(clock, ended):
    session, marked = Process(signal.SIGTERM), Process(signal.SIGTERM)
    assert ended(session, marked) == []
    assert session.got == marked.got == [signal.SIGTERM]
    assert clock.now_s < 1


def test_a_process_that_was_becoming_another_program_is_killed_too(clock, ended):
    session, marked = Process(signal.SIGTERM), Late(clock, signal.SIGKILL)
    assert ended(session, marked) == []
    assert not marked.alive
    assert marked.got == [signal.SIGKILL]
