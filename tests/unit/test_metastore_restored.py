"""A metastore whose database was restored gives the id of a lock a second time."""

from __future__ import annotations

import itertools

import pytest

from airflow_occ_provider.errors import LeaseLostError
from airflow_occ_provider.leases.metastore.service import MetastoreLeases
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from tests.crowd.locks import MemoryLocks


class RestorableLocks(MemoryLocks):
    def restore(self):
        """Restore the empty database of the beginning."""
        self._rows.clear()
        self._beats.clear()
        self._ids = itertools.count(1)


@pytest.fixture
def locks():
    return RestorableLocks(timeout_s=300)


def asked(name):
    return Request(name, Owner(("dag", name, "task")), (Scope.of("/t", None),), 60_000)


@pytest.mark.parametrize("is_adopted", [False, True], ids=["first epoch", "adopted"])
@pytest.mark.parametrize("call", ["status", "renew", "ensure_held", "adopt"])
def test_the_same_lock_id_of_another_request_is_a_lost_lease(locks, call, is_adopted):
    before, after = MetastoreLeases(locks, 300_000), MetastoreLeases(locks, 300_000)
    old = before.request(asked("before"))
    if is_adopted:
        old = before.adopt(old)
    locks.restore()
    new = after.request(asked("after"))
    assert new.token == old.token
    if is_adopted:
        new = after.adopt(new)
    with pytest.raises(LeaseLostError, match=r"lock 1 is that of dag / after / task"):
        getattr(before, call)(old)
    assert not before.release(old)
    assert after.status(new).held
    after.ensure_held(new)


def test_the_same_lock_id_of_another_request_is_not_released_by_force(locks):
    queue = MetastoreLeases(locks, 300_000)
    queue.request(asked("before"))
    (before,) = queue.requests()
    locks.restore()
    ticket = queue.request(asked("after"))
    assert not queue.evict(before)
    assert queue.status(ticket).held
    assert queue.evict(*queue.requests())
