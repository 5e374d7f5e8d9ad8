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


def test_the_same_lock_id_of_another_request_is_not_revoked(locks):
    queue = MetastoreLeases(locks, 300_000)
    queue.request(asked("before"))
    (before,) = queue.requests()
    locks.restore()
    ticket = queue.request(asked("after"))
    assert not queue.revoke(before, "ann")
    queue.ensure_held(ticket)


@pytest.mark.parametrize("call", ["status", "renew", "ensure_held", "adopt"])
def test_an_owner_reads_who_revoked_its_request_and_is_queued_anew(locks, call):
    owner, person = MetastoreLeases(locks, 300_000), MetastoreLeases(locks, 300_000)
    old = owner.adopt(owner.request(asked("first")))
    rival = person.request(asked("rival"))
    (first, _) = person.requests()
    by = f"ann@{'node.' * 30}example at 2026-11-21 13:40:00 UTC"  # longer than the metastore's column
    assert person.revoke(first, by)
    with pytest.raises(LeaseLostError, match=r"it was released by force by ann@node\.node"):
        getattr(owner, call)(old)
    assert not owner.release(old)
    assert not person.status(rival).held
    again = owner.request(asked("first"))
    assert again.token > rival.token
    assert person.status(rival).held
    assert not person.evict(first)
    assert max(len(row.agent) for row in locks.rows()) <= 128
