"""The bounded retry: which errors, how often, how long, and what is raised at its end."""

from __future__ import annotations

import pytest

from airflow_occ_provider import bounded as module
from airflow_occ_provider.bounded import bounded
from tests.support.patched import only_in


class Flaky:
    """An operation that fails some times before it answers."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that moves only in pauses."""
    pauses = []
    only_in(monkeypatch, module, "time", sleep=pauses.append, monotonic=lambda: 100.0 + sum(pauses))
    return pauses


def test_an_answer_is_returned_without_a_pause(clock):
    assert bounded(Flaky(), OSError, tries=3, pause_s=1.0) == "answer"
    assert clock == []


def test_an_operation_is_repeated_after_a_pause(clock):
    flaky = Flaky(OSError("1"), FileNotFoundError("2"))
    assert bounded(flaky, OSError, tries=3, pause_s=1.5) == "answer"
    assert (flaky.calls, clock) == (3, [1.5, 1.5])


def test_the_error_of_the_last_try_is_raised_as_it_is(clock):
    last = OSError("3")
    flaky = Flaky(OSError("1"), OSError("2"), last)
    with pytest.raises(OSError, match="3") as raised:
        bounded(flaky, (OSError, EOFError), tries=3, pause_s=1.0)
    assert raised.value is last
    assert (flaky.calls, clock) == (3, [1.0, 1.0])  # no pause after the last one


@pytest.mark.parametrize("error", [ValueError("other"), KeyboardInterrupt()])
def test_another_error_is_raised_at_once(error):
    flaky = Flaky(error)
    with pytest.raises(type(error)):
        bounded(flaky, OSError, tries=3)
    assert flaky.calls == 1


def test_no_try_begins_once_the_time_is_over(clock):
    flaky = Flaky(*[OSError()] * 9)
    with pytest.raises(OSError):  # noqa: PT011 - any
        bounded(flaky, OSError, within_s=5.0, pause_s=2.0)
    assert (flaky.calls, clock) == (4, [2.0, 2.0, 2.0])  # at 0, 2, 4 and 6 seconds


def test_an_interrupt_ends_a_pause(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    only_in(monkeypatch, module, "time", sleep=interrupted)
    flaky = Flaky(OSError())
    with pytest.raises(KeyboardInterrupt):
        bounded(flaky, OSError, tries=3, pause_s=1.0)
    assert flaky.calls == 1


def test_what_was_read_can_be_forgotten_before_the_next_try():
    told = []
    errors = [OSError("1"), OSError("2")]
    with pytest.raises(OSError, match="2"):
        bounded(Flaky(*errors), OSError, tries=2, before_next=told.append)
    assert told == errors[:1]  # there is no next one after the last


def test_a_retry_without_a_limit_is_refused():
    with pytest.raises(ValueError, match="limit"):
        bounded(Flaky(), OSError)
