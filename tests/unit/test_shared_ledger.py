"""The ledger in one object: lost answers, other writers, one write for several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from airflow_occ_provider.errors import ConfigurationError, LockUnreachableError
from airflow_occ_provider.leases.ledger import Change, Ledger, LedgerFormatError
from airflow_occ_provider.leases.storage.backend import StorageStore
from airflow_occ_provider.leases.storage.objects import ObjectContent, UnansweredError
from airflow_occ_provider.leases.store import NodeGoneError, NodeTakenError, NodeVersionError
from tests.support.memory_object import LOST, REFUSED, Memory


@pytest.fixture
def shared():
    return Memory()


@pytest.fixture
def store(shared):
    return StorageStore(shared, 0.01, 2.0)


@pytest.fixture
def other(shared):
    return StorageStore(shared, 0.01, 2.0)


@pytest.mark.parametrize("faults", [[LOST], [REFUSED], [REFUSED, LOST], [LOST, LOST]])
def test_a_change_whose_answer_was_lost_is_made_once(shared, store, other, faults):
    store.create("before", b"")
    shared.faults = list(faults)
    node = store.create("n", b"1")
    assert other.read(["n"], latest=True) == {"n": node}
    shared.faults = list(faults)
    version = store.replace("n", b"2", node.version)
    replaced = other.read(["n"], latest=True)["n"]
    assert replaced == node._replace(data=b"2", version=version, renewed_ms=replaced.renewed_ms)
    assert replaced.renewed_ms >= node.renewed_ms
    shared.faults = list(faults)
    store.delete("n", version)
    assert other.stamps().keys() == {"before"}


@pytest.mark.parametrize("faults", [[LOST], [REFUSED, LOST]])
def test_the_first_write_of_an_object_may_lose_its_answer_too(shared, store, other, faults):
    shared.faults = faults
    assert other.read(["n"], latest=True) == {}
    assert store.create("n", b"") == other.read(["n"], latest=True)["n"]


def test_a_lost_answer_is_known_although_another_client_wrote_since(shared, store, other):
    node = store.create("n", b"1")
    write = shared.write

    def write_and_let_others_write(data, tag):
        shared.write = write
        write(data, tag)
        found = other.read(["n"], latest=True)["n"]
        other.replace("n", b"3", found.version)
        raise UnansweredError("the answer was lost")

    shared.write = write_and_let_others_write
    version = store.replace("n", b"2", node.version)
    found = other.read(["n"], latest=True)["n"]
    assert (found.data, found.version != version) == (b"3", True)
    with pytest.raises(NodeVersionError):
        store.replace("n", b"4", version)


def test_what_an_old_ledger_refuses_is_looked_up_again(store, other):
    assert store.stamps() == {}
    node = other.create("n", b"")
    version = store.replace("n", b"2", node.version)
    with pytest.raises(NodeTakenError):
        other.create("n", b"")
    other.delete("n", version)
    with pytest.raises(NodeGoneError):
        store.delete("n", version)


@contextmanager
def while_a_write_waits(shared, store, changes):
    """Let further changes of other threads wait for a write, which then goes on."""
    begun, goes_on, write = threading.Event(), threading.Event(), shared.write

    def slow(data, tag):
        begun.set()
        assert goes_on.wait(10)
        return write(data, tag)

    shared.write = slow
    with ThreadPoolExecutor(changes + 1) as pool:
        first = pool.submit(store.create, "first", b"")
        assert begun.wait(10)
        yield pool
        while len(store._ledger._changes) < changes:
            assert not first.done()
        goes_on.set()


def test_changes_of_many_threads_go_in_few_writes(shared, store):
    with while_a_write_waits(shared, store, 20) as pool:
        created = [pool.submit(store.create, f"n{number}", b"") for number in range(20)]
    assert shared.writes == 2
    assert len({one.result().token for one in created}) == 20


def test_of_a_batch_each_change_has_its_own_error(shared, store):
    node = store.create("n", b"")
    with while_a_write_waits(shared, store, 3) as pool:
        wrong = [pool.submit(store.create, "n", b""), pool.submit(store.delete, "gone", 1)]
        right = pool.submit(store.replace, "n", b"2", node.version)
    assert isinstance(wrong[0].exception(), NodeTakenError)
    assert isinstance(wrong[1].exception(), NodeGoneError)
    assert store.read(["n"], latest=True)["n"].version == right.result()


def test_a_thread_that_is_interrupted_leaves_no_change_of_another_without_a_result(shared, store):
    class Interrupted(BaseException):
        pass

    def interrupt(data, tag):
        raise Interrupted

    store.create("n", b"")
    with while_a_write_waits(shared, store, 2) as pool:
        shared.write = interrupt
        late = [pool.submit(store.create, f"n{number}", b"") for number in range(2)]
    errors = [one.exception() for one in late]
    assert sorted(type(one).__name__ for one in errors) == ["Interrupted", "LockUnreachableError"]


def test_an_unchanged_object_is_not_read_again(shared, store):
    store.create("n", b"")
    read = shared.read
    answers = []
    shared.read = lambda known: answers.append(read(known)) or answers[-1]
    assert store.stamps().keys() == {"n"}
    assert answers == [None]


def test_a_storage_that_is_away_is_told_in_time(shared, store):
    node = store.create("n", b"")
    shared.is_away = True
    quick = StorageStore(shared, timeout_s=0.2)
    for call in (quick.stamps, lambda: quick.create("m", b""), lambda: quick.delete("n", node.version)):
        with pytest.raises(LockUnreachableError, match=r"memory://queue did not answer in 0\.2 s: away"):
            call()
    shared.is_away = False
    assert quick.stamps() == {"n": node.version}  # nothing of the failed calls is left


def test_what_is_no_ledger_stays_as_it_is(shared, store):
    shared.content = ObjectContent(b'{"mine": 1}', "t")
    for call in (store.stamps, lambda: store.create("n", b"")):
        with pytest.raises(ConfigurationError, match="lease_root: memory://queue: it is no queue"):
            call()
    assert shared.content.data == b'{"mine": 1}'


def test_a_ledger_of_another_format_is_refused():
    data = Ledger.empty(1).encode().replace(b'"format":2', b'"format":9')
    with pytest.raises(LedgerFormatError, match="format is 9"):
        Ledger.decode(data)


def test_tokens_rise_although_the_object_was_deleted(shared, store):
    token = store.create("n", b"").token
    shared.content = ObjectContent(b"", "")
    again = StorageStore(shared)
    assert again.stamps() == {}
    assert again.create("n", b"").token > token


def test_any_bytes_come_back():
    ledger = Change("create", "n", bytes(range(256))).apply(Ledger.empty(1))
    assert Ledger.decode(ledger.encode()) == ledger
