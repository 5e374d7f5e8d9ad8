"""What the queue of a bucket, or of DynamoDB, costs: ``python -m tests.bench.requests --store s3``.

``CHECK=1`` makes it a test. It takes six minutes: the triggers of some triggerers go by the default
times, on a real S3 server or on an emulated DynamoDB.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias
from unittest import mock

import structlog

from airflow_occ_provider.leases.dynamodb.ledger import DynamoLedger
from airflow_occ_provider.leases.lease import Ticket
from airflow_occ_provider.leases.ledger import LedgerStore
from airflow_occ_provider.leases.queue import Queue
from airflow_occ_provider.leases.rules import Owner, Request, Scope
from airflow_occ_provider.leases.storage.address import BUCKET_PACE, S3Access
from airflow_occ_provider.leases.storage.backend import StorageStore, open_shared_object
from airflow_occ_provider.leases.storage.objects import ObjectContent, SharedObject, SupersededError
from airflow_occ_provider.leases.store import Store
from airflow_occ_provider.triggers.lease import HudiAdmissionTrigger, HudiKeepLeaseTrigger, LeaseTrigger
from tests.bench.harness import Goal, conclude
from tests.services.dynamodb import EmbeddedDynamo
from tests.services.versitygw import EmbeddedVersitygw

PACE = BUCKET_PACE
SETTLE_S, MEASURED_S = 75.0, 180.0
CROWD, HANDOVERS = 100, 40
# Amazon's list prices in US dollars of us-east-1: of a GET, and of a PUT, refused or not.
GET_USD, PUT_USD = 0.0004 / 1000, 0.005 / 1000


class Counted:
    """A shared object whose requests are counted by kind."""

    def __init__(self, shared: SharedObject) -> None:
        self._shared, self.place = shared, shared.place
        self.requests: Counter[str] = Counter()

    def read(self, tag: str) -> ObjectContent | None:
        content = self._shared.read(tag)
        self.requests["GET unchanged" if content is None else "GET"] += 1
        return content

    def write(self, data: bytes, tag: str) -> str:
        try:
            tag = self._shared.write(data, tag)
        except SupersededError:
            self.requests["PUT refused"] += 1
            raise
        self.requests["PUT"] += 1
        return tag


Opened: TypeAlias = tuple[Store, Counter[str]]
"""A store of one process, and its requests by kind."""


def in_bucket(server: EmbeddedVersitygw, root: str) -> Opened:
    """Open the store in an object of a bucket."""
    access = S3Access(server.KEY, server.SECRET, endpoint=server.url)
    counted = Counted(open_shared_object(f"s3://lake/{root}", access))
    return StorageStore(counted, PACE.poll_s, gather_s=PACE.gather_s), counted.requests


def in_items(server: EmbeddedDynamo, root: str) -> Opened:
    """Open the store in items of DynamoDB; a request is counted as it is sent."""
    ledger, requests = DynamoLedger(server.access(), root, 10.0), Counter[str]()
    ledger._client.meta.events.register(
        "before-send.dynamodb", lambda event_name, **_: requests.update([event_name.rpartition(".")[2]])
    )
    return LedgerStore(ledger, PACE.poll_s), requests


class Triggerer:
    """The triggers of one process, on one connection.

    :param opened: its store.
    """

    def __init__(self, opened: Opened, name: str) -> None:
        store, self.requests = opened
        self.queue, self.name = Queue(store), name

    def ask(self, owner: str, table: str) -> Ticket:
        ttl_ms = PACE.ttl_s * 1000
        return self.queue.request(Request(owner, Owner((owner, "r")), (Scope.of(table, None),), ttl_ms))

    def start(self, kind: type[LeaseTrigger], ticket: Ticket) -> asyncio.Task[str]:
        trigger = kind(
            lock_conn_id=self.name,
            ticket=ticket.to_json(),
            ttl_ms=PACE.ttl_s * 1000,
            claim_ttl_ms=PACE.claim_ttl_s * 1000,
        )

        async def status() -> str:
            async for event in trigger.run():
                return str(event.payload["status"])
            return ""

        return asyncio.create_task(status())


class Site:
    """Some triggerers that share the queue of one root."""

    def __init__(self, opened: Callable[[str], Opened], root: str) -> None:
        self.triggerers = [Triggerer(opened(root), f"{root}#{number}") for number in range(2)]
        self.by_name = {one.name: one for one in self.triggerers}


async def count(site: Site, waiters: int) -> list[Counter[str]]:
    """Return the requests of a holder's triggerer and of its waiters', in the measured time."""
    holding, waiting = site.triggerers
    tasks = [holding.start(HudiKeepLeaseTrigger, holding.ask("holder", "/t"))]
    for number in range(waiters):
        ticket = await asyncio.to_thread(waiting.ask, f"w{number}", "/t")
        tasks.append(waiting.start(HudiAdmissionTrigger, ticket))
        await asyncio.sleep(random.uniform(0, 50 / waiters))
    await asyncio.sleep(SETTLE_S)
    for triggerer in site.triggerers:
        triggerer.requests.clear()
    await asyncio.sleep(MEASURED_S)
    requests = [Counter(triggerer.requests) for triggerer in site.triggerers]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return requests


async def hand_over(site: Site, chance: random.Random) -> list[float]:
    """Return the seconds from the release of each lease to its grant to a waiter."""
    holding, waiting = site.triggerers

    async def once(number: int) -> float:
        table = f"/t{number}"
        held = await asyncio.to_thread(holding.ask, f"h{number}", table)
        task = waiting.start(
            HudiAdmissionTrigger, await asyncio.to_thread(waiting.ask, f"w{number}", table)
        )
        await asyncio.sleep(20 + chance.uniform(0, 5 * PACE.poll_s))
        began_s = time.monotonic()
        await asyncio.to_thread(holding.queue.release, held)
        await task
        return time.monotonic() - began_s

    return list(await asyncio.gather(*map(once, range(HANDOVERS))))


async def measure(store: str, opened: Callable[[str], Opened]) -> list[Goal]:
    alone, crowd, passing = (Site(opened, name) for name in ("one", "many", "pass"))
    queues = alone.by_name | crowd.by_name | passing.by_name
    hooks = mock.patch(
        "airflow_occ_provider.triggers.lease.lock_hook",
        lambda name: SimpleNamespace(leases=lambda: queues[name].queue),
    )
    with hooks, mock.patch.object(Queue, "close"):
        few, many, took = await asyncio.gather(
            count(alone, 1), count(crowd, CROWD), hand_over(passing, random.Random(7))
        )
    minutes = MEASURED_S / 60
    seen = {"holder": few[0], "waiter": few[1], "crowd": many[1]}
    for who, requests in seen.items():
        print(f"{who:>8}: " + ", ".join(f"{n / minutes:.1f} {what}" for what, n in requests.items()))
        if store == "s3":
            puts = requests["PUT"] + requests["PUT refused"]
            usd = (puts * PUT_USD + (requests.total() - puts) * GET_USD) / minutes
            print(f"{'':>8}  US$ {usd * 60:.5f} an hour")
    crowd = 120 if store == "s3" else 2 * CROWD  # each item is renewed by a write of its own
    rates = {who: requests.total() / minutes for who, requests in seen.items()}
    return [
        Goal(f"{store}: requests a minute of a holder", rates["holder"], at_most=4, unit=""),
        Goal(f"{store}: requests a minute of a waiter", rates["waiter"], at_most=6, unit=""),
        Goal(f"{store}: requests a minute of 100 waiters", rates["crowd"], at_most=crowd, unit=""),
        Goal(f"{store}: hand-over, p50, in polls", statistics.median(took) / PACE.poll_s, at_most=1.5),
        Goal(f"{store}: hand-over, longest, in polls", max(took) / PACE.poll_s),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.requests", description=__doc__)
    parser.add_argument("--store", choices=("s3", "dynamodb"), default="s3")
    store = parser.parse_args().store
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        if store == "s3":
            bucket = stack.enter_context(EmbeddedVersitygw(folder))
            bucket.make_bucket("lake")
            opened: Callable[[str], Opened] = partial(in_bucket, bucket)
        else:
            dynamo = stack.enter_context(EmbeddedDynamo(folder))
            dynamo.make_table()
            opened = partial(in_items, dynamo)
        return conclude(asyncio.run(measure(store, opened)))


if __name__ == "__main__":
    sys.exit(main())
