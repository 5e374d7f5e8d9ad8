"""The log of changes in a metastore's locks, and what a client sees of it at a wrong moment."""

from __future__ import annotations

import itertools

import pytest

from airflow_occ_provider.errors import ConfigurationError, LeaseLostError, LockUnreachableError
from airflow_occ_provider.leases.metastore import lock_log
from airflow_occ_provider.leases.metastore.lock_log import MetastoreStore
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.store import NodeVersionError
from tests.crowd.locks import MemoryLocks

LIFETIME_S = 300.0


class Locks(MemoryLocks):
    """Locks whose next looks a test changes, and which may be restored or dropped."""

    def __init__(self):
        super().__init__(LIFETIME_S)
        self.before_rows = []

    def rows(self, table=None):
        if self.before_rows:
            self.before_rows.pop(0)()
        return super().rows(table)

    def drop(self, *tables):
        """Drop the locks on tables whose names begin so, as the metastore does when they are old."""
        for lock_id, rows in list(self._rows.items()):
            if rows[0].table.startswith(tables):
                self.unlock(lock_id)

    def restore(self):
        """Restore the empty database of the beginning."""
        self._rows.clear()
        self._ids = itertools.count(1)

    def age(self, seconds):
        for lock_id, rows in self._rows.items():
            aged = [row._replace(since_ms=row.since_ms - round(seconds * 1000)) for row in rows]
            self._rows[lock_id] = aged

    @property
    def tables(self):
        return {rows[0].table for rows in self._rows.values()}


@pytest.fixture
def locks():
    return Locks()


@pytest.fixture
def store(locks):
    return MetastoreStore(locks, LIFETIME_S)


@pytest.fixture
def second(locks):
    return MetastoreStore(locks, LIFETIME_S)


def request(name):
    return Request(name, Owner(("dag", name, "task")), (Scope.of("/t", None),), 60_000)


def test_the_log_stays_short_however_many_changes_there_are(locks, store, second):
    version = store.create("n", b"0").version
    for number in range(200):
        version = (store, second)[number % 2].replace("n", b"%d" % number, version)
    assert len(locks.rows()) < 50
    assert second.read(["n"], latest=True)["n"].data == b"199"


def test_an_old_ledger_is_added_again_by_the_next_change(locks, store):
    version = store.create("n", b"").version
    locks.age(LIFETIME_S / 9)
    version = store.replace("n", b"", version)
    locks.age(LIFETIME_S * 0.95)  # the first ledger is gone, the second is not
    assert store.read(["n"], latest=True)["n"].version == version


def test_a_renewal_does_not_count_while_the_ledger_it_needs_cannot_be_added(locks, store, monkeypatch):
    """The lease would last longer than what others know it by."""
    lock, version = locks.lock, store.create("n", b"").version

    def failing(table, pieces):
        if table.startswith("upto_"):
            raise LockUnreachableError("too many components")
        return lock(table, pieces)

    monkeypatch.setattr(locks, "lock", failing)
    locks.age(LIFETIME_S / lock_log.REFRESHES_PER_LIFETIME * 0.9)
    version = store.replace("n", b"early", version)
    locks.age(LIFETIME_S / lock_log.REFRESHES_PER_LIFETIME)
    with pytest.raises(LockUnreachableError, match="too many components"):
        store.replace("n", b"late", version)


def test_a_ledger_that_is_due_is_added_whatever_change_came_later(locks, store):
    """The client of the later change may have died after it."""
    version = store.create("n", b"").version
    locks.age(LIFETIME_S / lock_log.REFRESHES_PER_LIFETIME)
    later = lock_log._pieces(lock_log._encoded(lock_log.Change("create", "m")))
    locks.before_rows.append(lambda: locks.lock("changes", later))
    store.replace("n", b"1", version)
    locks.age(LIFETIME_S * 0.95)  # the first ledger is gone
    assert store.stamps().keys() == {"n", "m"}


def test_the_changes_that_no_ledger_precedes_bring_back_nothing_that_was_dropped(locks, store):
    version = store.create("n", b"").version
    store.replace("n", b"1", version)
    locks.drop("upto_")
    locks.unlock(1)
    assert dict(store.stamps()) == {}
    token = store.create("m", b"").token
    assert token > version
    assert store.stamps().keys() == {"m"}


def test_the_first_changes_of_a_queue_may_overtake_each_other(locks, store, second):
    locks.before_rows.append(lambda: second.create("m", b""))
    token = store.create("n", b"").token
    assert store.stamps() == second.stamps()
    assert store.stamps().keys() == {"n", "m"}
    assert token < second.read(["m"])["m"].token


def test_a_change_that_was_overtaken_twice_is_not_reported_as_made(locks, store, second):
    store.create("n", b"")

    def overtake():
        for number in range(3 * lock_log._MOST_CHANGES):
            second.create(f"m{number}", b"")

    locks.before_rows.append(overtake)
    with pytest.raises(LockUnreachableError, match="no result of the change"):
        store.create("late", b"")
    assert "late" in second.stamps()


def test_a_look_that_saw_a_later_lock_without_an_earlier_one_is_taken_again(locks, store, second):
    """A database whose reads are no snapshots: the first look misses what it passed before."""
    store.create("n", b"")
    store.stamps()
    rows = locks.rows

    def torn():
        locks.rows = rows
        first = second.replace("n", b"1", second.read(["n"])["n"].version)
        second.replace("n", b"2", first)
        return [row for row in rows() if row.lock_id != first]

    locks.rows = torn
    versions = store.stamps()
    assert locks.rows is rows
    assert versions == second.stamps()


def test_the_ids_of_a_restored_database_are_those_of_other_requests(locks):
    before, after = (Queue(MetastoreStore(locks, LIFETIME_S)) for _ in range(2))
    old = before.request(request("before"))
    (queued,) = before.requests()
    locks.restore()
    new = after.request(request("after"))
    assert new.token == old.token
    for call in (before.renew, before.ensure_held, before.adopt):
        with pytest.raises(LeaseLostError, match="removed"):
            call(old)
    assert not before.release(old)
    assert not before.evict(queued)
    assert after.status(new).held
    assert after.evict(*after.requests())


def test_what_another_release_wrote_is_refused_with_a_remedy(locks, store):
    store.create("n", b"")
    locks.lock("changes", lock_log._pieces(b'[9,"create","m",""]'))
    with pytest.raises(ConfigurationError, match=r"lease_database: .*format 9.*Remedy"):
        store.stamps()


def test_a_lock_that_cannot_be_read_is_refused(locks, store):
    store.create("n", b"")
    locks.lock("changes", ["p0of1=aaaa"])
    with pytest.raises(ConfigurationError, match=r"lease_database: .*lock 3 cannot be read"):
        store.stamps()


def test_foreign_locks_in_the_database_are_ignored(locks, store):
    version = store.create("n", b"").version
    locks.lock("trips", ["dt=2026-11-28"])
    locks.lock("changes", ["p0of2=aa"])
    with pytest.raises(NodeVersionError):
        store.replace("n", b"1", version + 1)
    assert store.stamps().keys() == {"n"}


def test_a_queue_that_is_too_long_for_a_metastore_is_refused(locks, store, monkeypatch):
    monkeypatch.setattr(lock_log, "_MOST_PIECES", 1)
    store.create("n", bytes(range(256)) * 8)
    version = store.read(["n"])["n"].version
    for number in range(2 * lock_log._MOST_CHANGES):
        version = store.replace("n", b"%d" % number * 3000, version)
    store.create("m", b"")
    store.replace("n", b"".join(b"%d" % (number**7) for number in range(900)), version)
    version = store.read(["n"])["n"].version
    for number in range(2 * lock_log._MOST_CHANGES):
        version = store.replace("m", b"%d" % number, store.read(["m"])["m"].version)
    fresh = MetastoreStore(locks, LIFETIME_S)  # of another process, which has looked once
    assert fresh.stamps()
    for client in (store, fresh):
        with pytest.raises(ConfigurationError, match=r"lease_database: 2 requests.*too many.*Remedy"):
            client.create("o", b"")
