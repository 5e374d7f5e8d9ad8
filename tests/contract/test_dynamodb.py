"""DynamoDB as a lease store: what *Test* checks, what it refuses, and what a queue costs."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from contextlib import closing

import pytest

from airflow_occ_provider.errors import ConfigurationError
from airflow_occ_provider.leases.dynamodb.access import DynamoAccess
from airflow_occ_provider.leases.dynamodb.backend import DynamoLeases
from airflow_occ_provider.leases.dynamodb.ledger import DynamoLedger
from airflow_occ_provider.leases.ledger import LedgerStore, _Watch
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.store import NodeVersionError
from tests.services.dynamodb import any_session

pytestmark = pytest.mark.rest


@pytest.fixture
def access(embedded_dynamodb):
    embedded_dynamodb.make_table()
    return embedded_dynamodb.access()


def items(access):
    return access.client(10).scan(TableName=access.table)["Items"]


def test_the_test_sees_exact_conditions_and_leaves_nothing(access):
    before = items(access)
    assert "one was carried out each time" in DynamoLeases(access, timeout_s=2.0).test()
    assert items(access) == before


def test_a_table_that_ignores_conditions_is_refused(access, monkeypatch):
    def careless(self, change):
        try:
            return replace(self, change)
        except NodeVersionError:
            node = self._ledger.nodes[change.name]
            return node._replace(version=node.version + 1)

    replace = DynamoLedger._replace
    monkeypatch.setattr(DynamoLedger, "_replace", careless)
    before = items(access)
    with pytest.raises(ConfigurationError, match="ignores the condition"):
        DynamoLeases(access, timeout_s=2.0).test()
    assert items(access) == before


def test_a_missing_table_is_told_with_the_command_that_makes_it(access):
    missing = DynamoAccess("missing", access.region, access.endpoint, any_session)
    with pytest.raises(ConfigurationError, match="there is no table missing") as caught:
        DynamoLeases(missing).open().requests()
    assert "aws dynamodb create-table --table-name missing" in caught.value.remedy


def test_a_table_with_another_key_is_refused(access):
    client = access.client(10)
    client.create_table(
        TableName="locks",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "key", "AttributeType": "S"}],
    )
    wrong = DynamoAccess("locks", access.region, access.endpoint, any_session)
    with pytest.raises(ConfigurationError, match="cannot keep leases"):
        DynamoLeases(wrong).open().requests()
    client.delete_table(TableName="locks")


def test_two_queues_of_a_table_do_not_see_each_other(access):
    scope = Scope.of("/lake/trips", None)
    for name in ("a", "b"):
        with closing(DynamoLeases(access, f"{name}-{uuid.uuid4()}").open()) as queue:
            ticket = queue.request(Request(name, Owner((name, "r", "t")), (scope,), 60_000))
            assert queue.status(ticket).held
            assert queue.release(ticket)


def test_a_waiter_and_a_holder_cost_few_requests(access, monkeypatch):
    """Each period of a waiter is one look, each of a holder one write, and one look before it."""
    asked = Counter()
    ask = DynamoLedger._ask
    monkeypatch.setattr(
        DynamoLedger, "_ask", lambda self, call, **more: asked.update([call]) or ask(self, call, **more)
    )
    name, scope = str(uuid.uuid4()), Scope.of("/lake/trips", None)
    holder, waiter = (Queue(LedgerStore(DynamoLedger(access, name, 10.0), 15.0)) for _ in range(2))
    held = holder.request(Request("h", Owner(("h", "r", "t")), (scope,), 180_000))
    waits = waiter.request(Request("w", Owner(("w", "r", "t")), (scope,), 180_000))
    asked.clear()
    holder.renew(held)
    holder.sweep(held)
    assert sum(asked.values()) <= 4
    asked.clear()
    assert not waiter.status(waits).held
    assert asked.total() <= 1
    asked.clear()
    waiter.renew(waits)
    assert asked.total() <= 2
    for queue, ticket in ((holder, held), (waiter, waits)):
        assert queue.release(ticket)
        queue.close()


def test_a_waiter_whose_creation_was_contested_looks_once_a_poll(access, monkeypatch):
    name = str(uuid.uuid4())
    rival, mine = (LedgerStore(DynamoLedger(access, name, 10.0), 0.2) for _ in range(2))
    mine.create("first", b"")
    node = rival.create("rival", b"")
    mine.create("mine", b"")
    looks, woken = Counter(), threading.Event()
    look = DynamoLedger._look
    monkeypatch.setattr(DynamoLedger, "_look", lambda self: looks.update([self]) or look(self))
    assert mine.on_delete("rival", woken.set)
    assert not woken.wait(1.0)
    assert looks.total() <= 8
    rival.delete("rival", node.version)
    assert woken.wait(60)
    for store in (rival, mine):
        store.close()


def test_a_deletion_that_another_thread_has_seen_wakes_at_once(access):
    store = LedgerStore(DynamoLedger(access, str(uuid.uuid4()), 10.0), 3600.0)
    node, woken = store.create("gone", b""), threading.Event()
    ledger = store._ledger.current()
    store.delete("gone", node.version)
    store._watches.add(_Watch("gone", node.token, ledger.revision, woken.set))
    assert woken.is_set()
    store.close()
