"""A call whose answer is shared, and the views of a table that share one."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_occ_provider.attempts.guards.table_guards import SharedCall
from airflow_occ_provider.errors import TableUnreadableError
from airflow_occ_provider.triggers import driver as module
from airflow_occ_provider.triggers.driver import shared_views


def test_many_threads_share_one_call():
    calls, at_once = [], threading.Barrier(8)

    def ask(_):
        at_once.wait(60)
        return shared.get()

    shared = SharedCall(lambda: calls.append(1) or len(calls), 600.0)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {1}
    assert SharedCall(lambda: calls.append(1) or len(calls), 0.0).get() == 2


def test_a_failure_is_shared_and_ends_with_its_period():
    answers = [TableUnreadableError("away"), 7]

    def call():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    shared = SharedCall(call, 600.0)
    for _ in range(3):
        with pytest.raises(TableUnreadableError, match="away"):
            shared.get()
    assert answers == [7]
    shared._period_s = 0.0
    assert shared.get() == 7


def test_guards_of_one_table_share_its_views(monkeypatch):
    opened = []
    monkeypatch.setattr(module, "open_table", lambda *given: opened.append(given) or None)
    first, second = shared_views("/t", None, 5.0), shared_views("/t", None, 5.0)
    assert first is second
    assert shared_views("/t", "storage", 5.0) is not first
    assert opened == [("/t", None), ("/t", "storage")]
    del first, second
    gc.collect()
    shared_views("/t", None, 5.0)
    assert len(opened) == 3
